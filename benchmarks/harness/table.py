"""The table, for a terminal, for ``benchmarks/README.md`` and as JSON."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.numbers import Figure, Measured, number
from benchmarks.harness.rows import Row

BEGIN = "<!-- measured: written by make bench -->"
END = "<!-- end of measured -->"

_HEADINGS = ("what", "ours", "processor", "peer", "peer's", "ratio", "of fastest", "of processor", "claim", "held")
_VERDICTS = {True: "yes", False: "**no**", None: ""}


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, in the order of the headings."""
    return (
        f"{row.what} ({row.note})" if row.note else row.what,
        _text(row.ours),
        _processor_time(row.ours),
        row.peer,
        _text(row.theirs),
        _times(row.ratio),
        _times(row.ratio_of_least),
        _times(row.ratio_of_cpu),
        row.limit,
        _VERDICTS[row.held],
    )


def _text(value: Figure | None) -> str:
    return "" if value is None else str(value)


def _processor_time(value: Figure | None) -> str:
    return "" if value is None or value.cpu is None else f"{number(value.cpu)} {value.unit}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{number(ratio)} ×"


def as_markdown(rows: Sequence[Row]) -> str:
    """A table as Markdown."""
    lines = [_HEADINGS, tuple("---" for _ in _HEADINGS), *map(cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_text(rows: Sequence[Row]) -> str:
    """A table whose columns are aligned with blanks."""
    lines = [_HEADINGS, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )


def as_json(rows: Sequence[Row], measured: Mapping[str, Measured], circumstances: Sequence[str]) -> dict[str, Any]:
    """Everything: the rows, and each sample behind them."""
    return {
        "circumstances": list(circumstances),
        "rows": [
            {
                "what": row.what,
                "ours": _figure(row.ours),
                "peer": row.peer,
                "theirs": _figure(row.theirs),
                "ratio": row.ratio,
                "claim": row.limit,
                "held": row.held,
                "note": row.note,
            }
            for row in rows
        ],
        "samples": {
            name: {
                f"{label} {size}": [sample.__dict__ for sample in samples]
                for (label, size), samples in found.samples.items()
            }
            for name, found in measured.items()
        },
    }


def _figure(value: Figure | None) -> dict[str, Any] | None:
    return (
        None if value is None else {"median": value.median, "least": value.least, "cpu": value.cpu, "unit": value.unit}
    )


def with_table(page: str, table: str, begin: str = BEGIN) -> str:
    """``page`` with ``table`` between ``begin`` and the next end mark. Raises ``ValueError`` if they are not there."""
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the page has no place for the table: {begin} ... {END}")
    return f"{before}{begin}\n\n{table}\n{END}{after}"


def circumstances(scratch: Path, peers: Sequence[str], load_before: float) -> list[str]:
    """Lines that say when, where and beside what was measured. ``peers``: names with their versions."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    today = datetime.datetime.now(datetime.UTC).date()
    return [
        f"{today}, {_processor()}, {cores} cores, {memory:.0f} GB, Linux {platform.release()}, "
        f"stores on {_disk(scratch)}",
        f"Python {platform.python_version()}, {', '.join(peers) or 'no peers'}",
        f"load of the machine before {load_before:.1f}, after {os.getloadavg()[0]:.1f}",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _disk(folder: Path) -> str:
    """The file system that ``folder`` lies on: the longest mount point above it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    above = [(len(point), kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(above)[1] if above else "an unknown file system"
