"""The corpus, JSON lines, to a committed token cache, by each tool; and the engine alone, on text in memory."""

from collections.abc import Sequence
from functools import partial

from benchmarks import corpus_tools as tools
from benchmarks.corpus_tools import ENGINE, FULL, PEERS, SMALL
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import BenchmarkError, Command
from benchmarks.harness.numbers import Figure, Measured
from benchmarks.harness.rows import Row, at_least_times, not_measured, told

TIMES = 10
OF_ENGINE = 0.6

WHOLE = "text to committed cache, the whole command"
ENCODING = "text to tokens: read, encoded, written and durable"
BEYOND = "the same, beyond the start"


def commands() -> Sequence[Command]:
    """A quarter of the corpus and all of it, each by each tool."""
    return [
        command
        for size in (SMALL, FULL)
        for command in (tools.marin(size), tools.engine(size), *(tools.peer(peer, size) for peer in tools.here()))
    ]


def rows(measured: Measured) -> Sequence[Row]:
    """Rates of text. The start is what a run takes however little it does; a rate beyond it has none."""
    for size in (SMALL, FULL):
        tools.check_counts(measured, ["marin", *tools.here()], size)
    size = tools.megabytes(measured, "marin", FULL)
    rest = size - tools.megabytes(measured, "marin", SMALL)
    ours = measured.seconds("marin", FULL).rate(size, "MB/s")
    ours_beyond = tools.beyond_start("marin", measured.seconds, rest)
    found = list[Row]()
    for peer in PEERS:
        if (reason := tools.why_not(peer)) is not None:
            found.append(not_measured(WHOLE, peer, reason))
            continue
        theirs = tools.seconds(measured, peer, FULL).rate(size, "MB/s")
        found.append(at_least_times(WHOLE, ours, peer, theirs, TIMES))
        found.append(_beyond(measured, ours_beyond, peer, rest))
    encoding = measured.of("marin", FULL, lambda sample: sample.said["encoding"], "s").rate(size, "MB/s")
    theirs = tools.engine_seconds(measured, ENGINE, FULL).rate(size, "MB/s")
    found.append(at_least_times(ENCODING, encoding, ENGINE, theirs, OF_ENGINE))
    found.append(told(WHOLE, ours, "engine, with its start", _with_load(measured, size)))
    return found


def _beyond(measured: Measured, ours: Figure, peer: str, megabytes: float) -> Row:
    try:
        theirs = tools.beyond_start(peer, partial(tools.seconds, measured), megabytes)
        return at_least_times(BEYOND, ours, peer, theirs, TIMES)
    except BenchmarkError:
        return not_measured(BEYOND, peer, "the machine was too busy")


def _with_load(measured: Measured, size: float) -> Figure:
    return measured.of(ENGINE, FULL, lambda sample: sample.said["engine_and_load"], "s").rate(size, "MB/s")


BENCHMARK = Benchmark(name="tokenizing", rounds=3, commands=commands, rows=rows)
