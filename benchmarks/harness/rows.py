"""Rows of the table: what is claimed, what was measured, whether it holds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        if self.ours is None or self.theirs is None or self.theirs.median <= 0:
            return None
        return self.ours.median / self.theirs.median

    @property
    def ratio_of_least(self) -> float | None:
        """As ``ratio``, of the fastest rounds."""
        if self.ours is None or self.theirs is None or self.theirs.least <= 0:
            return None
        return self.ours.least / self.theirs.least

    @property
    def ratio_of_cpu(self) -> float | None:
        """As ``ratio``, of processor time, which other work on the machine hardly touches."""
        if self.ours is None or self.theirs is None or self.ours.cpu is None or not self.theirs.cpu:
            return None
        return self.ours.cpu / self.theirs.cpu


def at_most_times(what: str, ours: Figure, peer: str, theirs: Figure, times: float, note: str = "") -> Row:
    """A claim that ours costs at most ``times`` what theirs does."""
    row = Row(what=what, ours=ours, peer=peer, theirs=theirs, limit=f"≤ {times:g} × {peer}", note=note)
    if row.ratio is None:
        raise ValueError(f"{what}: {peer} was measured as {theirs}, so that there is no ratio: measure more rounds")
    return replace(row, held=row.ratio <= times)


def at_most(what: str, ours: Figure, limit: float, note: str = "") -> Row:
    """A claim that ours is at most ``limit``, in its own unit."""
    return Row(what=what, ours=ours, limit=f"≤ {number(limit)} {ours.unit}", held=ours.median <= limit, note=note)


def told(what: str, ours: Figure, peer: str = "", theirs: Figure | None = None, note: str = "") -> Row:
    """No claim: printed for whoever reads the table."""
    return Row(what=what, ours=ours, peer=peer, theirs=theirs, note=note)


def not_measured(what: str, peer: str, why: str) -> Row:
    """A peer that this machine does not have."""
    return Row(what=what, ours=None, peer=peer, note=f"not measured here: {why}")
