"""Rows of the table: what is claimed, what was measured, whether it holds. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.harness.command import BenchmarkError
from benchmarks.harness.numbers import Figure, number


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. ``held`` is ``None`` where nothing is claimed, or a part could not be measured."""

    what: str
    ours: Figure | None
    peer: str = ""
    theirs: Figure | None = None
    limit: str = ""
    held: bool | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours by theirs. ``None``: there is nothing to compare with."""
        return _ratio(self.ours, self.theirs, lambda figure: figure.median)

    @property
    def ratio_of_least(self) -> float | None:
        """As ``ratio``, of the fastest rounds."""
        return _ratio(self.ours, self.theirs, lambda figure: figure.least)

    @property
    def ratio_of_cpu(self) -> float | None:
        """As ``ratio``, of processor time, which other work on the machine hardly touches."""
        return _ratio(self.ours, self.theirs, lambda figure: figure.cpu)


def _ratio(ours: Figure | None, theirs: Figure | None, part: Callable[[Figure], float | None]) -> float | None:
    above = part(ours) if ours is not None else None
    below = part(theirs) if theirs is not None else None
    # A difference of two noisy times may come out as nothing, or less: that is no figure.
    return None if above is None or below is None or above <= 0 or below <= 0 else above / below


def at_most_times(what: str, ours: Figure, peer: str, theirs: Figure, times: float, note: str = "") -> Row:
    """A claim that ours costs at most ``times`` what theirs does."""
    row = Row(what=what, ours=ours, peer=peer, theirs=theirs, limit=f"≤ {times:g} × {peer}", note=note)
    if row.ratio is None:
        raise BenchmarkError(
            f"{what}: {ours} by {theirs} of {peer} is no ratio: the machine is too busy, or add --rounds"
        )
    return replace(row, held=row.ratio <= times)


def at_least_times(what: str, ours: Figure, peer: str, theirs: Figure, times: float, note: str = "") -> Row:
    """A claim that ours, a rate, is at least ``times`` theirs."""
    row = Row(what=what, ours=ours, peer=peer, theirs=theirs, limit=f"≥ {times:g} × {peer}", note=note)
    if row.ratio is None:
        raise BenchmarkError(
            f"{what}: {ours} by {theirs} of {peer} is no ratio: the machine is too busy, or add --rounds"
        )
    return replace(row, held=row.ratio >= times)


def at_least(what: str, ours: Figure, limit: float, note: str = "") -> Row:
    """A claim that ours is at least ``limit``, in its own unit."""
    return Row(what=what, ours=ours, limit=f"≥ {number(limit)} {ours.unit}", held=ours.median >= limit, note=note)


def at_most(what: str, ours: Figure, limit: float, note: str = "") -> Row:
    """A claim that ours is at most ``limit``, in its own unit."""
    if ours.median <= 0:
        raise BenchmarkError(f"{what}: {ours} is no measure: the machine is too busy, or add --rounds")
    return Row(what=what, ours=ours, limit=f"≤ {number(limit)} {ours.unit}", held=ours.median <= limit, note=note)


def told(what: str, ours: Figure, peer: str = "", theirs: Figure | None = None, note: str = "") -> Row:
    """No claim: printed for whoever reads the table."""
    return Row(what=what, ours=ours, peer=peer, theirs=theirs, note=note)


def not_measured(what: str, peer: str, why: str) -> Row:
    """A peer that this machine does not have."""
    return Row(what=what, ours=None, peer=peer, note=f"not measured here: {why}")
