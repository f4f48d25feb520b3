"""Ten thousand steps, all built: how long until the plan is there."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, told

STEPS = 10_000


def commands() -> Sequence[Command]:
    """The plan of one step and of ten thousand."""
    return [
        replace(
            shapes.marin("independent", size, action="plan"),
            filled_by=shapes.marin("independent", size),
            outputs=size,
        )
        for size in (1, STEPS)
    ]


def rows(measured: Measured) -> Sequence[Row]:
    """``plan()`` as its caller waits for it; the whole command, with start and the making of handles, is told."""
    planned = measured.said("marin", STEPS, "plan")
    return [
        at_most(f"plan of {STEPS:,} cached steps", planned, 1.0),
        told("the same, whole command with start and making the handles", measured.seconds("marin", STEPS)),
    ]


BENCHMARK = Benchmark(name="planning", rounds=5, commands=commands, rows=rows)
