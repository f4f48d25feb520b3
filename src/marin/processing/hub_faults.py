"""What the hub and its client say when something is wrong, in one plain line: which thing, what, and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

import huggingface_hub

from marin.errors import DataError, HubUnreachableError, MarinError
from marin.processing.http_answers import certificate_fault, is_passing
from marin.processing.retrying import GaveUp, PassingFault, Stopped, asked_wait

_PASSING_NAMES = {"TimeoutException", "NetworkError", "RemoteProtocolError", "ProxyError"}
"""Classes of the HTTP library of the hub's client, whichever that is."""

_UNREACHED_NAMES = {"ConnectError", "ConnectTimeout", "ProxyError"}

_LOGIN = "'hf auth login', or set HF_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the hub was asked for. ``called`` begins a message; ``None``: kind and name."""

    name: str
    kind: str
    revision: str | None = None
    file: str | None = None
    called: str | None = None

    @property
    def beginning(self) -> str:
        file = f", file {self.file!r}," if self.file is not None else ""
        return f"{self.called or f'{self.kind} {self.name!r}'}{file} can't be read from the hub"


@contextlib.contextmanager
def plainly(name: str, kind: str, called: str | None = None) -> Generator[None, None, None]:
    """Whatever the hub's client raises in the block becomes one plain line that begins with ``called``."""
    asked = Asked(name=name, kind=kind, called=called)
    with given_up(asked), passing_faults(asked, now=0.0):
        yield


@contextlib.contextmanager
def given_up(asked: Asked) -> Generator[None, None, None]:
    """A ``PassingFault`` that is not tried again, and the end of all tries, become a ``HubUnreachableError``."""
    try:
        yield
    except PassingFault as fault:
        raise HubUnreachableError(f"{asked.beginning}: {fault.reason}: {fault.remedy}") from fault
    except GaveUp as fault:
        raise HubUnreachableError(f"{asked.beginning}: {fault}") from fault


@contextlib.contextmanager
def passing_faults(asked: Asked, *, now: float) -> Generator[None, None, None]:
    """What the hub's client raises in the block becomes a ``PassingFault``, or an error that is final."""
    try:
        yield
    except (MarinError, PassingFault, GaveUp, Stopped):
        raise
    except Exception as fault:  # the client lets the errors of its HTTP library through, whichever that is
        cause = _told(fault)
        if (passing := _passing(cause, now)) is not None:
            raise passing from fault
        kind, reason = _reason(cause, asked)
        raise kind(f"{asked.beginning}: {reason}") from fault


def _told(fault: Exception) -> BaseException:
    """What kept the client from asking the hub, which it hides behind an error of its cache."""
    errors = huggingface_hub.errors
    if isinstance(fault, errors.LocalEntryNotFoundError | errors.FileMetadataError) and fault.__cause__:
        return fault.__cause__
    return fault


def _passing(fault: BaseException, now: float) -> PassingFault | None:
    response = cast("Any", getattr(fault, "response", None))
    if response is not None:
        status = int(response.status_code)
        if not is_passing(status):
            return None
        wait = asked_wait(response.headers, now)
        return PassingFault(f"the hub answers {status} ({response.reason_phrase})", asked=wait)
    names = {kind.__name__ for kind in type(fault).__mro__}
    if certificate_fault(fault) or not names & _PASSING_NAMES:
        return None
    what = "the hub can't be reached" if names & _UNREACHED_NAMES else "the connection was cut or fell silent"
    return PassingFault(f"{what} ({_first_line(fault)})", remedy="check the network", answered=False)


def _reason(fault: BaseException, asked: Asked) -> tuple[type[DataError], str]:
    errors = huggingface_hub.errors
    match fault:
        case errors.OfflineModeIsEnabled():
            offline = "HF_HUB_OFFLINE is set, which forbids to ask it: unset it, or use files of this machine"
            return HubUnreachableError, offline
        case errors.GatedRepoError():
            return DataError, f"it is gated: ask for access on its page, then {_LOGIN}"
        case errors.RepositoryNotFoundError():
            return DataError, "there is no such repository: check the id; a private one needs 'hf auth login'"
        case errors.RevisionNotFoundError():
            return DataError, f"it has no revision {asked.revision!r}: check revision="
        case errors.EntryNotFoundError():
            return DataError, f"it lacks {asked.file or 'a file'} ({_first_line(fault)})"
        case errors.HfHubHTTPError():
            return DataError, _refusal(fault)
        case errors.HFValidationError():
            return DataError, f"the id is not one ({_first_line(fault)})"
        case ValueError():  # JSON was asked for
            return DataError, f"what answers is not the hub ({_first_line(fault)}): check HF_ENDPOINT and the network"
        case _:
            if certificate := certificate_fault(fault):
                return HubUnreachableError, certificate
            return HubUnreachableError, f"the hub can't be reached ({_first_line(fault)}): check the network"


def _refusal(fault: huggingface_hub.errors.HfHubHTTPError) -> str:
    said = fault.server_message or _first_line(fault)
    match fault.response.status_code:
        case 401:
            return f"the hub does not know who asks ({said}): {_LOGIN}; is the token still valid?"
        case 403:
            return f"the hub refuses ({said}): your token may not read it; use one that may: {_LOGIN}"
        case _:
            return f"the hub refuses ({said}): check HF_ENDPOINT and the id"


def _first_line(fault: BaseException) -> str:
    return next(iter(str(fault).strip().splitlines()), type(fault).__name__).rstrip(". ")
