"""From the start of the process to the end of the first step, compiled anew and compiled before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import train_cases as cases
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, told
from benchmarks.train_cases import MARIN, NANO, Case

LIMIT_SECONDS = 12.0
AGAIN = "compiled before"

CASE = Case(shape=NANO, precision="float32", steps=2, skipped=1)


def commands() -> Sequence[Command]:
    """Two steps each. The second command's caches are filled by a run of its own."""
    again = cases.command(MARIN, CASE, label=AGAIN, action="again")
    return [cases.command(MARIN, CASE), replace(again, filled_by=again)]


def rows(measured: Measured) -> Sequence[Row]:
    """Half of the time, if all is compiled already."""
    what = f"{CASE.title}: start of the process to first step"
    anew, again = (cases.first_step(measured, label, CASE) for label in (MARIN, AGAIN))
    return [
        at_most(what, anew, LIMIT_SECONDS),
        at_most(f"the same, {AGAIN}", again, LIMIT_SECONDS / 2),
        told(f"the same, {AGAIN}", again, "compiled anew", anew),
    ]


BENCHMARK = Benchmark(name="first-step", rounds=5, commands=commands, rows=rows)
