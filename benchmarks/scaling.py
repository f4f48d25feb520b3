"""How making a token cache grows with the cores that it may use."""

from collections.abc import Sequence
from functools import partial

from benchmarks import corpus_tools as tools
from benchmarks.corpus_tools import CORES, FULL, SMALL
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import BenchmarkError, Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, not_measured, told

STEPS = sorted({1, CORES, *(2**power for power in range(1, 8) if 2**power < CORES)})
"""Numbers of cores: one, two, four, ... up to those that there are."""


def _label(tool: str, cores: int) -> str:
    return f"{tool} on {cores}"


def commands() -> Sequence[Command]:
    """Ours, and the engine alone with as many processes."""
    return [
        command
        for size in (SMALL, FULL)
        for cores in STEPS
        for command in (
            tools.marin(size, label=_label("marin", cores), cores=cores),
            tools.engine(size, label=_label("engine", cores), workers=cores),
        )
    ]


def rows(measured: Measured) -> Sequence[Row]:
    """Rates beyond the start, each beside that of one core."""
    small, full = (tools.megabytes(measured, _label("marin", 1), size) for size in (SMALL, FULL))
    clocks = {"marin": measured.seconds, "engine": partial(tools.engine_seconds, measured)}
    found = list[Row]()
    for tool, clock in clocks.items():
        what = "text to committed cache, beyond the start" if tool == "marin" else "the engine alone, text in memory"
        try:
            rates = {cores: tools.beyond_start(_label(tool, cores), clock, full - small) for cores in STEPS}
        except BenchmarkError:  # nothing is claimed of it
            found.append(not_measured(what, tool, "the machine was too busy"))
            continue
        found += [told(f"{what}, on {cores} cores", rates[cores], "on 1", rates[1]) for cores in STEPS[1:]]
        if len(STEPS) == 1:
            found.append(told(f"{what}, on the one core", rates[1]))
    return found


BENCHMARK = Benchmark(name="scaling", rounds=3, commands=commands, rows=rows)
