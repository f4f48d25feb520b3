"""The memory of a run of ten thousand steps."""

from collections.abc import Sequence

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, told

STEPS = 10_000


def commands() -> Sequence[Command]:
    """One step and ten thousand, built."""
    return [shapes.marin("independent", size) for size in (1, STEPS)]


def rows(measured: Measured) -> Sequence[Row]:
    """The largest resident memory at any moment of the run, at worst."""
    most = measured.worst("marin", STEPS, lambda sample: sample.max_rss_mb, "MB")
    per_step = measured.per_step("marin", STEPS)
    return [
        at_most(f"memory of a run of {STEPS:,} steps, cold", most, 300.0),
        told(f"{STEPS:,} independent, cold, not durable, per step", per_step),
    ]


BENCHMARK = Benchmark(name="memory", rounds=1, commands=commands, rows=rows)
