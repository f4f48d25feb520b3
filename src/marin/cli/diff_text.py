"""A comparison of two artifacts as a table for people, and as JSON. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from marin.execution.comparison import ABSENT, SECTIONS, Comparison, Row
from marin.execution.meter import shortened
from marin.execution.plan_text import Line

LISTED_MEMBERS = 10
"""So many rows are shown of one list, or of the members of one value; ``--json`` has all."""

_NARROWEST_VALUE = 16
"""Columns; on a terminal that has less room for a value, the two stand below each other."""

_GAP = "  "


def comparison_lines(
    compared: Comparison, names: tuple[str, str], *, everything: bool, width: int | None
) -> Iterator[Line]:
    """Section by section, key by key. ``width``: columns of the terminal. ``None``: as wide as it takes."""
    rows = compared.rows if everything else compared.differing
    if not rows:
        yield Line(f"{names[0]} and {names[1]} are the same in all that is recorded")
    cells = {section: _abbreviated([row for row in rows if row.section == section]) for section in SECTIONS}
    layout = _Layout(names, [row for section in cells.values() for row in section], width)
    if rows:
        yield from layout.heading()
    for section, shown in cells.items():
        if shown:
            yield Line(section, "strong")
            yield from itertools.chain.from_iterable(layout.row(row) for row in shown)
    same = [section for section in SECTIONS if _is_same(compared, section)]
    if same and not everything:
        yield Line(f"the same: {', '.join(same)}", "dim")
    yield from (Line(f"note: {note}", "warning") for note in compared.notes)


def comparison_as_json(compared: Comparison, names: tuple[str, str], *, everything: bool) -> dict[str, Any]:
    """Rows by section. A side that does not have a value has no such key."""
    rows = compared.rows if everything else compared.differing
    sections: dict[str, list[dict[str, Any]]] = {section: [] for section in SECTIONS}
    for row in rows:
        sides = {side: value for side, value in (("a", row.a), ("b", row.b)) if value is not ABSENT}
        told: dict[str, Any] = {"key": row.key, **sides, "same": row.is_same}
        if row.difference is not None:
            told["difference"] = row.difference
        sections[row.section].append(told)
    return {
        "a": names[0],
        "b": names[1],
        "equal": not compared.differing and not compared.notes,
        "sections": sections,
        "notes": list(compared.notes),
    }


class _Cells(NamedTuple):
    key: str
    a: str
    b: str
    difference: str
    is_same: bool


def _is_same(compared: Comparison, section: str) -> bool:
    rows = [row for row in compared.rows if row.section == section]
    return bool(rows) and all(row.is_same for row in rows)


def _abbreviated(rows: Sequence[Row]) -> list[_Cells]:
    """The rows, of each group of members only the first few."""
    shown: list[_Cells] = []
    for group, members in itertools.groupby(rows, key=lambda row: _group(row.key)):
        listed = list(members)
        shown += [_Cells(row.key, *row.shown, row.difference_text, row.is_same) for row in listed[:LISTED_MEMBERS]]
        if (more := len(listed) - LISTED_MEMBERS) > 0:
            shown.append(_Cells(f"… {more:,} more{f' of {group}' if group else ''}", "", "", "", True))
    return shown


def _group(key: str) -> str:
    """What the value is a member of: the outermost list, else what is before its last name."""
    outer, bracket, _ = key.partition("[")
    return outer if bracket else key.rpartition(".")[0]


class _Layout:
    """Four columns, or where they don't fit, lines below each other."""

    def __init__(self, names: tuple[str, str], cells: Sequence[_Cells], width: int | None) -> None:
        self._names = names
        self._width = width
        self._key = max((len(row.key) for row in cells), default=0)
        self._last = max((len(row.difference) for row in cells), default=0)
        self._a = max([len(names[0]), *(len(row.a) for row in cells)])
        self._b = max([len(names[1]), *(len(row.b) for row in cells)])
        self._stacked = False
        if width is None:
            return
        room = width - self._key - self._last - len(_GAP) * 4
        if self._a + self._b > room:
            self._a = self._b = room // 2
            self._stacked = self._a < _NARROWEST_VALUE

    def heading(self) -> Iterator[Line]:
        if self._stacked:
            yield Line(f"- {self._names[0]}", "strong")
            yield Line(f"+ {self._names[1]}", "strong")
        else:
            yield self._line("", *self._names, "", tone="strong")

    def row(self, row: _Cells) -> Iterator[Line]:
        if not self._stacked or not (row.a or row.b):
            yield self._line(row.key, row.a, row.b, row.difference, tone="dim" if row.is_same else "plain")
            return
        room = max(1, (self._width or 0) - 6)
        yield Line(f"  {row.key}  {row.difference}".rstrip(), "dim" if row.is_same else "plain")
        if row.is_same:
            yield Line(f"    = {shortened(row.a, room)}", "dim")
        else:
            yield Line(f"    - {shortened(row.a, room)}", "error")
            yield Line(f"    + {shortened(row.b, room)}", "good")

    def _line(self, key: str, a: str, b: str, last: str, *, tone: Any) -> Line:
        if self._stacked:
            return Line(f"  {key}".rstrip(), tone)
        columns = [f"{key:<{self._key}}", _cell(a, self._a), _cell(b, self._b), last]
        return Line(f"{_GAP}{_GAP.join(columns)}".rstrip(), tone)


def _cell(text: str, width: int) -> str:
    return f"{shortened(text, width):<{width}}"
