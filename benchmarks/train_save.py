"""How long a training is held up by a save that goes on beside its steps."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import train_cases as cases
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, told
from benchmarks.train_cases import MARIN, NANO, Case

LIMIT_SECONDS = 0.2
EVERY, SAVES = 4, 9
"""Steps from save to save, and saves: two steps behind each one may be slower, the next two are not."""

CASE = Case(shape=NANO, precision="float32", steps=EVERY * (SAVES + 1), skipped=EVERY, save_every=EVERY)


def commands() -> Sequence[Command]:
    """One long training with many saves."""
    return [cases.command(MARIN, CASE)]


def rows(measured: Measured) -> Sequence[Row]:
    """Two steps behind a save, less two without: the middle one of all saves, and of all rounds."""
    delay = measured.of(MARIN, CASE.steps, lambda sample: sample.said["save_delay"], "s")
    step = measured.of(MARIN, CASE.steps, lambda sample: sample.said["step"], "s")
    what = f"{CASE.title}: a save delays the training by"
    # A delay that noise hides is none, but it is no measure either.
    shown = at_most(what, delay, LIMIT_SECONDS) if delay.median > 0 else told(what, delay, note="less than the noise")
    return [shown, told(f"{CASE.title}: a step, beside such saves", step)]


BENCHMARK = Benchmark(name="save", rounds=3, commands=commands, rows=rows)
