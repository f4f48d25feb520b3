"""The hosts of a run: host 0 carries it out, the others take part in the steps that all hosts are to make.

A run on several hosts is the same script on each, started with ``MARIN_HOSTS``, ``MARIN_HOST`` and
``MARIN_COORDINATOR``. Host 0 alone holds leases and writes records; ``taking_part`` is what the others do.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from marin.errors import ConfigurationError, HostLostError, MarinError, RunInterrupted, StepError
from marin.execution.identity import ArtifactId
from marin.execution.record import Attempt
from marin.executors.hosts import COORDINATOR_VARIABLE, COUNT_VARIABLE, INDEX_VARIABLE, HostPlace

if TYPE_CHECKING:
    from marin.executors.roll_call import RollCall


class Crew(Protocol):
    """The hosts of a run, as the steps of host 0 see them."""

    def environment(self, id_: ArtifactId, attempt: Attempt, *, all_hosts: bool) -> dict[str, str]:
        """What the process of a step is to know; with ``all_hosts`` the others begin to take part in it."""
        ...

    def check(self, attempt: Attempt) -> None:
        """Raise ``StepError`` if the attempt has failed on another host."""
        ...

    def ended(self, id_: ArtifactId, build_id: str | None) -> None:
        """Tell the others which build is the one to use; ``None``: the step has failed."""
        ...


class OneHost:
    """A run on one host."""

    def environment(self, id_: ArtifactId, attempt: Attempt, *, all_hosts: bool) -> dict[str, str]:
        del id_, attempt, all_hosts
        return {}

    def check(self, attempt: Attempt) -> None:
        pass

    def ended(self, id_: ArtifactId, build_id: str | None) -> None:
        pass


ALONE_SECONDS = 30.0
"""So long after another host is lost a step that all hosts make may go on: one that sees it itself says more."""


class Leader:
    """Host 0 of several."""

    def __init__(self, place: HostPlace, hosts: RollCall, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._place, self._hosts, self._clock = place, hosts, clock
        self._faults = dict[str, str]()  # by the id of the build
        self._begun = set[str]()  # likewise; of those that all hosts make
        self._lost_at: float | None = None

    def environment(self, id_: ArtifactId, attempt: Attempt, *, all_hosts: bool) -> dict[str, str]:
        if not all_hosts:
            return dict.fromkeys((COUNT_VARIABLE, INDEX_VARIABLE, COORDINATOR_VARIABLE), "")
        self._hosts.check()
        port = self._place.free_port()
        self._hosts.tell({"begins": str(id_), "build_id": attempt.build_id, "nonce": attempt.lease.nonce, "port": port})
        self._begun.add(attempt.build_id)
        return {COORDINATOR_VARIABLE: self._place.beside(port)}

    def check(self, attempt: Attempt) -> None:
        try:
            while (told := self._hosts.next_news(0)) is not None:
                host, news = told
                self._faults.setdefault(news["build_id"], f"host {host}: {news['fault']}")
        except HostLostError as lost:  # of the steps only those are concerned that all hosts make
            self._lost_at = self._clock() if self._lost_at is None else self._lost_at
            if self._clock() - self._lost_at >= ALONE_SECONDS and attempt.build_id in self._begun:
                self._faults.setdefault(attempt.build_id, str(lost))
        if (fault := self._faults.get(attempt.build_id)) is not None:
            raise StepError(fault)

    def ended(self, id_: ArtifactId, build_id: str | None) -> None:
        self._hosts.tell({"step": str(id_), "build_id": build_id})


@contextlib.contextmanager
def gathered(place: HostPlace, *, about: Callable[[], str]) -> Generator[RollCall | None]:
    """The hosts of a run, once all are there; ``None`` if there is but one. Host 0 tells the others how it ended.

    ``about`` says which run it is: a host that came for another one is not let in.
    """
    if place.count == 1:
        yield None
        return
    from marin.executors.roll_call import RollCall  # noqa: PLC0415  # most runs have one host

    with RollCall(place.index, place.count, ends_process=False) as hosts:
        hosts.come_together(place.address, place.port, about=about(), seconds=place.wait_seconds, offer=lambda: 0)
        try:
            yield hosts
        except (MarinError, RunInterrupted) as fault:
            if place.index == 0:
                code = fault.exit_code if isinstance(fault, RunInterrupted) else None
                hosts.tell({"ended": str(fault), "code": code})
                hosts.end_together()
            raise
        if place.index == 0:
            hosts.tell({"ended": None})


def check_same_plan(hosts: RollCall, to_make: Sequence[ArtifactId], code: Mapping[ArtifactId, str]) -> None:
    """Raise ``ConfigurationError`` unless all hosts see the same to do, with the same ``code`` where all do it."""
    first, *others = hosts.exchange("plan", sorted(map(str, to_make)))
    for number, other in enumerate(others, start=1):
        if differing := sorted(set(first) ^ set(other)):
            raise ConfigurationError(
                f"host {number} and host 0 do not have the same to make ({', '.join(differing[:5])}): start the same "
                "script on all hosts, over one shared store"
            )
    ours, *theirs = hosts.exchange("code", {str(id_): digest for id_, digest in code.items()})
    for number, other in enumerate(theirs, start=1):
        if edited := [name for name in ours if ours[name] != other.get(name)]:
            raise ConfigurationError(
                f"host {number} and host 0 do not have the same code for {', '.join(edited[:5])}: start the same "
                "script on all hosts, with the same modules"
            )
