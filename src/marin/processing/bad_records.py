"""What becomes of records that can't be read: an error that says where, or a count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias, get_args

from marin.errors import BadRecordError, ConfigurationError, DataError

OnBadRecord: TypeAlias = Literal["error", "skip"]
"""``error``: the first bad record ends the step. ``skip``: it is left out and counted.

Where a file is cut or damaged so that it can't be read further, ``skip`` keeps what came before and counts all that
would have followed as one record: how many documents they are is not known.
"""

MAX_BAD_FRACTION = 0.01
"""With ``skip``, the share of bad records up to which a source is still taken for sound."""

_EXCERPT = 80
"""Characters of a bad record that messages and records show."""


@dataclass(frozen=True, kw_only=True)
class BadRecordCount:
    """How many records were left out for one reason, and the first of them: file, position and how it begins.

    ``unread_rests``: how many of them were where a file could not be read any further. What would have followed counts
    as one record, since nobody can tell how many it is.
    """

    reason: str
    count: int
    example: str
    unread_rests: int = 0


class _File(Protocol):
    @property
    def shown(self) -> str: ...


class BadRecords:
    """Raises for the first bad record, or counts all of them by reason, as its policy says."""

    def __init__(self, policy: OnBadRecord = "error") -> None:
        check_policy("on_bad_record", policy)
        self._skip = policy == "skip"
        self._counts: dict[str, BadRecordCount] = {}

    @property
    def counts(self) -> tuple[BadRecordCount, ...]:
        """One for each reason, in the order in which they first occurred."""
        return tuple(self._counts.values())

    def refuse(
        self, reason: str, file: _File, position: Callable[[], str], expected: str, excerpt: bytes | str
    ) -> None:
        """Raise ``BadRecordError``, or count.

        ``reason`` is what such records are counted under, such as "missing key". ``position`` is asked only where it is
        shown, since to tell a line may mean to count those before it. Without an ``excerpt`` nothing is said of it.
        """
        if not self._skip:
            remedy = "mend or remove it, or leave such records out with on_bad_record='skip'"
            raise _error(reason, file, position, expected, excerpt, remedy)
        self._count(reason, file, position, shortened(excerpt) if excerpt else f"expected {expected}", rests=0)

    def refuse_rest(
        self, reason: str, file: _File, position: Callable[[], str], expected: str, excerpt: bytes | str
    ) -> None:
        """As ``refuse``, from where on ``file`` can't be read: all that would follow is counted as one record."""
        if not self._skip:
            remedy = "mend or remove it, or leave out what follows, however much it is, with on_bad_record='skip'"
            raise _error(reason, file, position, expected, excerpt, remedy)
        begins = f"{shortened(excerpt)}, and " if excerpt else ""
        self._count(reason, file, position, f"{begins}the rest of the file was not read", rests=1)

    def _count(self, reason: str, file: _File, position: Callable[[], str], what: str, *, rests: int) -> None:
        known = self._counts.get(reason)
        if known is None:
            known = BadRecordCount(reason=reason, count=0, example=f"{file.shown}, {position()}: {what}")
        self._counts[reason] = _added(known, 1, rests)


def merge_counts(parts: Iterable[Iterable[BadRecordCount]]) -> tuple[BadRecordCount, ...]:
    """The sums by reason, each with the example of the first part that has one."""
    merged: dict[str, BadRecordCount] = {}
    for each in (each for part in parts for each in part):
        known = merged.get(each.reason)
        merged[each.reason] = _added(known, each.count, each.unread_rests) if known else each
    return tuple(merged.values())


def check_fraction(counts: Iterable[BadRecordCount], good: int, max_fraction: float, source: str) -> None:
    """Raise ``DataError`` if more than ``max_fraction`` of the records of ``source`` are bad, listing what is."""
    counts = tuple(counts)
    bad = sum(each.count for each in counts)
    if bad > max_fraction * (bad + good):
        rests = sum(each.unread_rests for each in counts)
        unread = f"; {rests:,} of them are the rest of a file, each of nobody knows how many records" if rests else ""
        kinds = "; ".join(f"{each.count:,} {each.reason} (such as {each.example})" for each in counts)
        raise DataError(
            f"{bad:,} of {bad + good:,} records of {source} can't be read, more than "
            f"max_bad_fraction={max_fraction:g}: {kinds}{unread}. Mend them, or allow more with max_bad_fraction="
        )


def check_policy(name: str, policy: object, max_fraction: float = MAX_BAD_FRACTION) -> None:
    """Raise ``ConfigurationError`` in the name of ``name`` for what is no policy, or no fraction."""
    if policy not in get_args(OnBadRecord):
        raise ConfigurationError(f"{name}={policy!r} is unknown; known are {', '.join(get_args(OnBadRecord))}")
    if not 0 <= max_fraction <= 1:
        raise ConfigurationError(f"max_bad_fraction={max_fraction!r} is no fraction: give a number from 0 to 1")


def _error(
    reason: str, file: _File, position: Callable[[], str], expected: str, excerpt: bytes | str, remedy: str
) -> BadRecordError:
    found = f", found {shortened(excerpt)}" if excerpt else ""
    return BadRecordError(f"{file.shown}, {position()}: {reason}: expected {expected}{found}; {remedy}")


def _added(known: BadRecordCount, count: int, rests: int) -> BadRecordCount:
    return replace(known, count=known.count + count, unread_rests=known.unread_rests + rests)


def shortened(excerpt: bytes | str) -> str:
    """How ``excerpt`` begins, quoted, in one line."""
    text = excerpt if isinstance(excerpt, str) else excerpt[: 4 * _EXCERPT].decode(errors="backslashreplace")
    text = text.strip()
    return repr(text[:_EXCERPT] + "…" if len(text) > _EXCERPT else text)
