"""The corpus in files of very different sizes: do all cores stay busy?"""

from collections.abc import Sequence

from benchmarks import corpus_tools as tools
from benchmarks.corpus_tools import CORES, FULL, SMALL
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import BenchmarkError, Command
from benchmarks.harness.numbers import Figure, Measured
from benchmarks.harness.rows import Row, at_least, told

BUSY = 0.85
"""Of the processors there are, so much of the time."""

LAYOUTS = {
    "even": "four files of one size",
    "skewed": "one file of 60 % and twenty of 2 %",
    "single": "one file",
}


def commands() -> Sequence[Command]:
    """The same documents in each layout, and a quarter of them for what a run takes at its start."""
    return [
        tools.marin(SMALL, label="even"),
        *(tools.marin(FULL, label=layout, layout=layout) for layout in LAYOUTS),
    ]


def rows(measured: Measured) -> Sequence[Row]:
    """Processor seconds by seconds of the clock, beyond the start; and the time beside that of even files."""
    even = measured.seconds("even", FULL)
    found = list[Row]()
    for layout, files in LAYOUTS.items():
        busy = _busy(layout, measured.seconds(layout, FULL) - measured.seconds("even", SMALL))
        found.append(at_least(f"{files}: processors at work, beyond the start", busy, BUSY * CORES))
    for layout, files in list(LAYOUTS.items())[1:]:
        found.append(told(f"{files}: the whole command", measured.seconds(layout, FULL), LAYOUTS["even"], even))
    return found


def _busy(layout: str, taken: Figure) -> Figure:
    if taken.cpu is None or min(taken.cpu, taken.median, taken.least) <= 0:
        raise BenchmarkError(f"{layout}: {taken} beyond the start: the machine is too busy, or add --rounds")
    return Figure(median=taken.cpu / taken.median, least=taken.cpu / taken.least, unit="processors")


BENCHMARK = Benchmark(name="skew", rounds=3, commands=commands, rows=rows)
