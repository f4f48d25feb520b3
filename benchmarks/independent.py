"""A thousand independent steps, nothing built yet."""

from collections.abc import Sequence

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most_times, told

STEPS = 1_000

FLOORS = ("plain", "protocol")
"""The same files written by a loop, without any tool; and with all that we do with the disk for a step, but no more."""

DURABLE = "marin durable"


def commands() -> Sequence[Command]:
    """One step and a thousand, of each tool."""
    found: list[Command] = []
    for size in (1, STEPS):
        found.append(shapes.marin("independent", size))
        found += [shapes.peer(tool, "independent", size) for tool in (*shapes.here(), *FLOORS)]
        found.append(shapes.marin("independent", size, label=DURABLE, durable=True))
    return found


def rows(measured: Measured) -> Sequence[Row]:
    """Per step, against joblib; the rest is told."""
    found: list[Row] = []
    ours = measured.per_step("marin", STEPS)
    what = f"{STEPS:,} independent, cold, not durable, per step"
    for tool in (*shapes.here(), *FLOORS):
        theirs = measured.per_step(tool, STEPS)
        if tool == "joblib":
            found.append(at_most_times(what, ours, tool, theirs, 1.0))
            found.append(at_most_times(f"{what}: never above", ours, tool, theirs, 1.5))
        else:
            found.append(told(what, ours, tool, theirs))
    found.append(told("the same, durable", measured.per_step(DURABLE, STEPS), "marin", ours))
    return found


BENCHMARK = Benchmark(name="independent", rounds=5, commands=commands, rows=rows)
