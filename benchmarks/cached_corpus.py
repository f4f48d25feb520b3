"""The plan of a token cache that is there."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import corpus_tools as tools
from benchmarks.corpus_tools import SMALL
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, told

LIMIT_MS = 10.0


def commands() -> Sequence[Command]:
    """The plan of a cache that was made before, in a new process each time."""
    return [replace(tools.marin(SMALL, action="plan"), filled_by=tools.marin(SMALL))]


def rows(measured: Measured) -> Sequence[Row]:
    """What the call takes, and the whole command around it."""
    planning = measured.said("marin", SMALL, "plan").scaled(1000, "ms")
    return [
        at_most("plan of a token cache that is there", planning, LIMIT_MS),
        told("the same, whole command with start and making the handle", measured.seconds("marin", SMALL)),
    ]


BENCHMARK = Benchmark(name="cached_corpus", rounds=9, commands=commands, rows=rows)
