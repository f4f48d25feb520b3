"""What a server that has input files means by its answers: whether to ask again, and what a user can do.

Each library behind fsspec has errors of its own, so they are told apart by what those have in common: a status of HTTP,
a class of Python's own, a name.
"""

from __future__ import annotations

import ftplib
import http.client
import time
from urllib.parse import urlsplit

from marin.errors import DataError, MarinError
from marin.execution.redaction import shown_place
from marin.processing.http_answers import certificate_fault, is_passing
from marin.processing.retrying import asked_wait

TRIES = 4
"""How often a server is asked that fails in a way which may pass."""

_FORBIDDEN = {401, 403, 407}
_MISSING = {404, 410}
_TOO_MANY = 429
_NO_CREDENTIALS = ("Credential", "TokenRetrieval", "RefreshError", "Anonymous")
"""In the names of what the libraries of the stores raise without a login."""

_LOGIN_REFUSED = ("530", "532")
_HINTS = {
    "http": (
        'set FSSPEC_HTTP to {"headers": {"Authorization": "Bearer TOKEN"}} in the environment, or give a URL that has '
        "the permission in it and has not expired"
    ),
    "s3": "set up a login as for the aws command, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    "gs": "set up a login with 'gcloud auth application-default login', or GOOGLE_APPLICATION_CREDENTIALS",
    "ftp": "give the login in the URL, as ftp://USER:PASSWORD@HOST/PATH",
}
_KIN = {"https": "http", "s3a": "s3", "gcs": "gs"}


def is_missing(fault: BaseException) -> bool:
    """Whether the server says that there is no such file."""
    fault = _cause(fault)
    status = _status(fault)
    return isinstance(fault, FileNotFoundError) if status is None else status in _MISSING


def may_pass(fault: BaseException) -> bool:
    """Whether another try may go well."""
    if isinstance(fault, MarinError) or is_missing(fault) or _is_forbidden(fault) or certificate_fault(fault):
        return False
    status = _status(_cause(fault))
    return status is None or is_passing(status)


def asked_seconds(fault: BaseException) -> float:
    """How long the server wants to be left alone, 0 if it does not say."""
    headers = getattr(_cause(fault), "headers", None)
    return (asked_wait(dict(headers), time.time()) or 0.0) if headers else 0.0


def explained(url: str, fault: BaseException) -> DataError:
    """What to raise for ``fault``, in one line."""
    shown, leave_out = shown_place(url), "or leave it out with exclude="
    if is_missing(fault):
        return DataError(f"{shown} is not there: check the address, {leave_out}")
    reason = _reason(fault)
    if _is_forbidden(fault):
        scheme = urlsplit(url).scheme.lower()
        hint = _HINTS.get(_KIN.get(scheme, scheme), "give the credentials that its driver asks for")
        return DataError(f"{shown} may not be read ({reason}): check the address, {hint}, {leave_out}")
    if certificate := certificate_fault(fault):
        return DataError(f"{shown} can't be read: {certificate}")
    status = _status(_cause(fault))
    if status == _TOO_MANY:
        remedy = "it was asked too often: try again later, with fewer workers="
        return DataError(f"{shown} can't be read, tried {TRIES} times: {reason}; {remedy}, {leave_out}")
    if status is not None and is_passing(status):
        remedy = "the fault is the server's: try again later"
        return DataError(f"{shown} can't be read, tried {TRIES} times: {reason}; {remedy}, {leave_out}")
    if status is not None:
        return DataError(f"{shown} can't be read: {reason}; check the address, {leave_out}")
    remedy = "check the address, the network and your credentials"
    return DataError(f"{shown} can't be read, tried {TRIES} times: {reason}; {remedy}, {leave_out}")


def _cause(fault: BaseException) -> BaseException:
    """What happened: fsspec calls any fault of a web server a file that is not found."""
    while isinstance(fault, FileNotFoundError) and fault.errno is None and isinstance(fault.__cause__, Exception):
        fault = fault.__cause__
    return fault


def _status(fault: BaseException) -> int | None:
    for name in ("status", "code"):
        status = getattr(fault, name, None)
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return None


def _is_forbidden(fault: BaseException) -> bool:
    fault = _cause(fault)
    if isinstance(fault, ftplib.Error):
        return str(fault).startswith(_LOGIN_REFUSED)
    named = any(word in type(fault).__name__ for word in _NO_CREDENTIALS)
    return isinstance(fault, PermissionError) or named or _status(fault) in _FORBIDDEN


def _reason(fault: BaseException) -> str:
    fault = _cause(fault)
    status = _status(fault)
    if status is not None:
        return f"its server answers {status} {http.client.responses.get(status, '')}".strip()
    first_line = next(iter(str(fault).strip().splitlines()), "")
    return shown_place(first_line.rstrip(". ")) or type(fault).__name__
