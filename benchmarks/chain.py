"""A thousand steps, each on the one before; and a hundred thousand handles in a row."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most_times, told

STEPS = 1_000
HANDLES = 100_000
INDEPENDENT = "independent"
LOWERED = "lowered"


def commands() -> Sequence[Command]:
    """The chain and as many independent steps; the chain of each peer; the long chain and a tenth of it, lowered."""
    found = [shapes.marin("chain", STEPS), replace(shapes.marin("independent", STEPS), label=INDEPENDENT)]
    found += [shapes.peer(tool, "chain", STEPS) for tool in shapes.here()]
    lowered = (HANDLES // 10, HANDLES)
    return [*found, *(shapes.marin("chain", size, label=LOWERED, action="lower") for size in lowered)]


def rows(measured: Measured) -> Sequence[Row]:
    """Whole commands: at most 1.2 times the independent steps; the long chain ends, in time that grows as it does."""
    ours = measured.seconds("marin", STEPS)
    what = f"chain of {STEPS:,}, cold, not durable"
    found = [at_most_times(what, ours, INDEPENDENT, measured.seconds(INDEPENDENT, STEPS), 1.2)]
    found += [told(what, ours, tool, measured.seconds(tool, STEPS)) for tool in shapes.here()]
    long, tenth = measured.seconds(LOWERED, HANDLES), measured.seconds(LOWERED, HANDLES // 10)
    found.append(at_most_times(f"chain of {HANDLES:,} handles, lowered", long, "a tenth of it", tenth, 12.0))
    return found


BENCHMARK = Benchmark(name="chain", rounds=5, commands=commands, rows=rows)
