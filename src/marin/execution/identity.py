"""Names, versions and addresses: what makes an artifact *that* artifact."""

from __future__ import annotations

import datetime
import functools
import re
from typing import NamedTuple

from marin.errors import InvalidNameError, InvalidVersionError

MAX_SEGMENT_BYTES = 200
"""Longest segment of a name. Leaves room below the 255 bytes of common file systems for our own suffixes."""

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_DATE_VERSION = re.compile(r"([0-9]{4})\.([0-9]{2})\.([0-9]{2})(?:\.([1-9][0-9]*))?")
_LOOSE_DATE = re.compile(r"[vV]?([0-9]{4})[-._/]?([0-9]{1,2})[-._/]?([0-9]{1,2})(?:[-._/]([1-9][0-9]*))?")


class ArtifactId(NamedTuple):  # hashed and compared dozens of times for each step of a run
    """Names one artifact. Equal ids share one address, whatever their recipe.

    >>> str(ArtifactId("tokenized/poems", "2026.07.01"))
    'tokenized/poems@2026.07.01'
    """

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def address(self) -> str:
        """Where the artifact lies, relative to the prefix.

        >>> ArtifactId("tokenized/poems", "dev").address
        'tokenized/poems/dev'
        """
        return f"{self.name}/{self.version}"

    @property
    def is_mutable(self) -> bool:
        return is_mutable(self.version)


def artifact_id(name: str, version: str) -> ArtifactId:
    """The checked id. Raises ``InvalidNameError`` or ``InvalidVersionError``, each with the fault and the fix."""
    return ArtifactId(checked_name(name), checked_version(version, name))


def parse_artifact_id(text: str) -> ArtifactId:
    """Reads ``name@version``.

    >>> parse_artifact_id("tokenized/poems@dev")
    ArtifactId(name='tokenized/poems', version='dev')
    """
    name, at, version = text.partition("@")
    if not at:
        raise InvalidNameError(
            f"{text!r} has no version: write NAME@VERSION, such as {name or 'tokenized/poems'}@2026.07.01"
        )
    return artifact_id(name, version)


def checked_name(name: object) -> str:
    """``name`` itself, or ``InvalidNameError``."""
    if not isinstance(name, str):
        raise InvalidNameError(f"an artifact's name is text, not {type(name).__name__}: {name!r}")
    if fault := _name_fault(name):
        raise InvalidNameError(
            f"artifact name {name!r}: {fault}. "
            "A name is made of segments of letters, digits, '.', '_' and '-', joined by '/', such as 'tokenized/poems'"
        )
    return name


def _name_fault(name: str) -> str | None:
    if not name:
        return "it is empty"
    if "://" in name:
        return "it has a scheme; where the store lies is said by the prefix, not by the name"
    for segment in name.split("/"):
        if fault := _segment_fault(segment):
            return fault
    return None


@functools.lru_cache(maxsize=4096)
def _segment_fault(segment: str) -> str | None:
    if not segment:
        return "it has an empty segment (a leading, trailing or double '/')"
    if segment.startswith("."):
        return f"segment {segment!r} begins with a dot; such names are Marin's own"
    if not _SEGMENT.fullmatch(segment):
        bad = next(char for char in segment if not re.fullmatch(r"[A-Za-z0-9._-]", char))
        return f"segment {segment!r} has the character {bad!r}"
    if len(segment) > MAX_SEGMENT_BYTES:
        return f"segment {segment[:20]!r}… has {len(segment)} bytes; at most {MAX_SEGMENT_BYTES} fit into a folder name"
    if segment == "dev" or _DATE_VERSION.fullmatch(segment):
        return f"segment {segment!r} is a version; give it as version={segment!r}"
    return None


@functools.lru_cache(maxsize=512)  # asked for with each look at a step
def is_mutable(version: str) -> bool:
    """Whether ``version`` is rebuilt at every run.

    >>> is_mutable("dev"), is_mutable("anna-dev"), is_mutable("2026.07.01")
    (True, True, False)
    """
    return version == "dev" or (version.endswith("-dev") and version != "-dev")


def checked_version(version: object, name: str) -> str:
    """``version`` itself, or ``InvalidVersionError`` that shows a valid one."""
    if not isinstance(version, str):
        raise InvalidVersionError(
            f"the version of {_shown(name)} is text, not {type(version).__name__}: write it as '2026.06.28', in quotes"
        )
    if version == "dev" or (is_mutable(version) and _segment_fault(version) is None):
        return version
    if _is_date_version(version):
        return version
    raise InvalidVersionError(
        f"{version!r} is not a version of {_shown(name)}: {_version_hint(version)}"
        "a fixed version is a date, '2026.06.28' or '2026.06.28.2'; 'dev' and '<label>-dev' are rebuilt at every run"
    )


@functools.lru_cache(maxsize=512)  # a pipeline has few versions, and thousands of handles
def _is_date_version(version: str) -> bool:
    return _DATE_VERSION.fullmatch(version) is not None and _real_date(version)


def is_version(text: str, name: str) -> bool:
    """Whether ``text`` is a version, of what is called ``name``."""
    try:
        checked_version(text, name)
    except InvalidVersionError:
        return False
    return True


def _shown(name: str) -> str:
    """``name`` in quotes; what is not a name but says in words whose version it is, as it is."""
    return name if " " in name else repr(name)


def version_order(version: str) -> tuple[int, ...]:
    """Sorts fixed versions from old to new.

    >>> sorted(["2026.07.01.10", "2026.07.01.9", "2026.07.01"], key=version_order)
    ['2026.07.01', '2026.07.01.9', '2026.07.01.10']
    """
    return tuple(int(part) for part in version.split("."))


def _real_date(version: str) -> bool:
    year, month, day = (int(part) for part in version.split(".")[:3])
    try:
        datetime.date(year, month, day)
    except ValueError:
        return False
    return True


def _version_hint(version: str) -> str:
    match = _LOOSE_DATE.fullmatch(version.strip())
    if match is None:
        return ""
    year, month, day, number = match.groups()
    candidate = f"{year}.{int(month):02}.{int(day):02}" + (f".{number}" if number else "")
    if not _real_date(candidate):
        return f"there is no such day as {candidate}; "
    return f"did you mean {candidate}? "
