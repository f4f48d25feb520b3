"""What HTTP says that matters to a download, whichever library speaks it."""

from __future__ import annotations

import http
import re
import ssl
from collections.abc import Mapping

from marin.processing.origins import NotTheFile, UnplacedPart
from marin.processing.retrying import PassingFault

_PASSING = {408, 425, 429}
_NEVER = {501, 505}
# Of at most 18 digits: what is longer is nonsense, and may be too long for Python to read.
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)
_RANGE = re.compile(r"bytes\s+(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII | re.IGNORECASE)
_UNSATISFIED = re.compile(r"bytes\s+\*/(\d{1,18})", re.ASCII | re.IGNORECASE)
_PLAIN = {"", "identity", "aws-chunked"}
"""Encodings that leave the bytes as they are. The last is what some clients of S3 leave behind at an upload."""
_SUFFIXES = {
    "gzip": (".gz", ".tgz"),
    "bzip2": (".bz2", ".tbz2"),
    "xz": (".xz", ".txz"),
    "zstd": (".zst",),
    "br": (".br",),
    "compress": (".Z",),
}
"""Names of files that are compressed in the way of an encoding."""


def is_passing(status: int) -> bool:
    """Whether a later try may be answered otherwise."""
    return status in _PASSING or (status >= 500 and status not in _NEVER)


def range_of(headers: Mapping[str, str], status: int, asked: int) -> tuple[int, int | None, int | None]:
    """First byte, byte after the last, and size of the whole, of a 200 or 206; ``None`` where it is not told.

    Raises ``NotTheFile`` for another status, ``PassingFault`` for a 202, and ``UnplacedPart`` for a 206 that leaves
    open which bytes it has, or has others than those from ``asked`` on.

    >>> range_of({"content-range": "bytes 5-9/20"}, 206, 5), range_of({"content-length": "20"}, 200, 5)
    ((5, 10, 20), (0, 20, 20))
    """
    lower = {key.lower(): value.strip() for key, value in headers.items()}
    told = _LENGTH.fullmatch(lower.get("content-length", ""))
    # What is sent in chunks has no length beforehand, whatever else is said.
    length = int(told[0]) if told and "transfer-encoding" not in lower else None
    match status:
        case 200:
            return 0, length, length
        case 202:
            raise PassingFault("the server answers 202 (Accepted): it does not have the file ready")
        case 206:
            return _part(lower.get("content-range", ""), length, asked)
        case _:
            phrase = {each.value: f" ({each.phrase})" for each in http.HTTPStatus}.get(status, "")
            raise NotTheFile(f"the server answers {status}{phrase}, which is not the file")


def _part(text: str, length: int | None, asked: int) -> tuple[int, int, int | None]:
    found = _RANGE.fullmatch(text)
    if not found:
        raise UnplacedPart("the server sends a part of the file and does not say which (206 without Content-Range)")
    first, end = int(found[1]), int(found[2]) + 1
    size = None if found[3] == "*" else int(found[3])
    if first >= end or (size is not None and end > size) or length not in (None, end - first):
        raise UnplacedPart(f"the server sends a part of the file and contradicts itself (Content-Range: {text})")
    if first != asked:
        raise UnplacedPart(f"bytes from {asked:,} on were asked for, and those from {first:,} on came")
    return first, end, size


def compression_of(headers: Mapping[str, str], name: str) -> tuple[str, str] | None:
    """How the answer is compressed, and a name for what comes; ``None`` if it is what a file called ``name`` holds.

    >>> compression_of({"Content-Encoding": "gzip"}, "a.csv"), compression_of({"Content-Encoding": "gzip"}, "a.csv.gz")
    (('gzip', 'a.csv.gz'), None)
    """
    lower = {key.lower(): value.lower() for key, value in headers.items()}
    encodings = [each.strip().removeprefix("x-") for each in lower.get("content-encoding", "").split(",")]
    left = [each for each in encodings if each not in _PLAIN]
    if not left:
        return None
    suffixes = _SUFFIXES.get(left[0], ()) if len(left) == 1 else ()
    # A server may label files that are compressed themselves so: theirs are the bytes that come.
    if name.endswith(suffixes):
        return None
    return ", ".join(left), f"{name}{''.join(_SUFFIXES.get(each, ('.' + each,))[0] for each in left)}"


def unsatisfied_size(headers: Mapping[str, str]) -> int | None:
    """The size of the whole that a 416 tells."""
    lower = {key.lower(): value for key, value in headers.items()}
    found = _UNSATISFIED.fullmatch(lower.get("content-range", "").strip())
    return int(found[1]) if found else None


def certificate_fault(fault: BaseException) -> str | None:
    """What to do about a certificate that is not trusted, if that is what ``fault`` is about."""
    seen: BaseException | None = fault
    while seen is not None:
        reason = getattr(seen, "reason", None)
        if isinstance(seen, ssl.SSLCertVerificationError) or isinstance(reason, ssl.SSLCertVerificationError):
            return (
                "its certificate is not trusted here: set SSL_CERT_FILE to the authority that your network uses, "
                "and check the clock of this machine"
            )
        seen = seen.__cause__ or seen.__context__
    return None
