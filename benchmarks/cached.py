"""A thousand independent steps, all of them built before."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, at_most_times, told

STEPS = 1_000


def _again(command: Command) -> Command:
    return replace(command, filled_by=command)


def commands() -> Sequence[Command]:
    """One step and a thousand, of each tool, on stores that its own cold run has filled."""
    found: list[Command] = []
    for size in (1, STEPS):
        found.append(_again(shapes.marin("independent", size)))
        found += [_again(shapes.peer(tool, "independent", size)) for tool in shapes.here()]
    return found


def rows(measured: Measured) -> Sequence[Row]:
    """Per step: at most half of joblib's, and at most a tenth of a millisecond."""
    what = f"{STEPS:,} cached, per step"
    ours = measured.per_step("marin", STEPS)
    found = [at_most(what, ours, 0.1)]
    for tool in shapes.here():
        theirs = measured.per_step(tool, STEPS)
        found.append(
            at_most_times(what, ours, tool, theirs, 0.5) if tool == "joblib" else told(what, ours, tool, theirs)
        )
    return found


BENCHMARK = Benchmark(name="cached", rounds=7, commands=commands, rows=rows)
