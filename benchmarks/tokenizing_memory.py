"""The memory of all processes that make a token cache of the corpus."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import corpus_tools as tools
from benchmarks.corpus_tools import FULL, PEERS, SMALL
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, not_measured, told

LIMIT_MB = 600.0


def commands() -> Sequence[Command]:
    """All of the corpus, watched; the quarter is there to warm the caches of code."""
    return [
        replace(command, watched=True)
        for size in (SMALL, FULL)
        for command in (tools.marin(size), *(tools.peer(peer, size) for peer in tools.here()))
    ]


def rows(measured: Measured) -> Sequence[Row]:
    """Ours is claimed, the others are told beside it."""
    what = "memory of all processes while a cache is made, at most"
    ours = tools.peak(measured, "marin", FULL)
    found = [at_most(what, ours, LIMIT_MB), told("likewise, of a quarter", tools.peak(measured, "marin", SMALL))]
    for peer in PEERS:
        if (reason := tools.why_not(peer)) is not None:
            found.append(not_measured(what, peer, reason))
        else:
            found.append(told(what, ours, peer, tools.peak(measured, peer, FULL)))
    return found


BENCHMARK = Benchmark(name="tokenizing_memory", rounds=1, commands=commands, rows=rows)
