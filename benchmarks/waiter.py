"""Two processes want one artifact: how late the one that waits notices that it is built."""

from collections.abc import Sequence

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark, program
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most

SECONDS = (1, 5)
"""How long the builds take: somebody who has waited for longer must not look less often."""


def commands() -> Sequence[Command]:
    """A short build and a longer one."""
    return [
        Command(
            label="marin",
            size=seconds,
            argv=program("waiting_process.py", seconds, "{store}"),
            env=shapes.NOT_DURABLE,
            outputs=1,
        )
        for seconds in SECONDS
    ]


def rows(measured: Measured) -> Sequence[Row]:
    """Seconds from the record's writing until the other process has its artifact, at worst."""
    found: list[Row] = []
    for seconds in SECONDS:
        worst = measured.worst("marin", seconds, lambda sample: sample.said["late"], "s")
        found.append(at_most(f"a waiter notices a build of {seconds} s, at worst", worst, 0.5))
    return found


BENCHMARK = Benchmark(name="waiter", rounds=5, commands=commands, rows=rows)
