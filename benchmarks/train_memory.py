"""The memory of all processes of a training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import train_cases as cases
from benchmarks.corpus_tools import peak
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most_times, not_measured, told
from benchmarks.train_cases import LEVANTER, MARIN, NANO, Case

OF_LEVANTER = 0.8

CASE = Case(shape=NANO, precision="float32", steps=6).saving_once()


def benchmark(peers: Sequence[str]) -> Benchmark:
    """A few steps and a checkpoint, watched. It is the largest sum at any moment, at worst."""

    def commands() -> Sequence[Command]:
        tools = (MARIN, *(peer for peer in peers if cases.why_not(peer) is None))
        return [replace(cases.command(tool, CASE), watched=True) for tool in tools]

    def rows(measured: Measured) -> Sequence[Row]:
        what = f"{CASE.title}: memory of all processes, at most"
        ours, found = peak(measured, MARIN, CASE.steps), list[Row]()
        for peer in peers:
            if (reason := cases.why_not(peer)) is not None:
                found.append(not_measured(what, peer, reason))
                continue
            theirs = peak(measured, peer, CASE.steps)
            claimed = at_most_times(what, ours, peer, theirs, OF_LEVANTER) if peer == LEVANTER else None
            found.append(claimed or told(what, ours, peer, theirs))
        return found or [told(what, ours)]

    return Benchmark(name="train-memory", rounds=1, commands=commands, rows=rows)
