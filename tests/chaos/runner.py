"""One runner of the chaos: runs parts of the graph again and again, until it is told to stop or is killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from marin.errors import MarinError, RunInterrupted
from marin.execution import RunOptions, held_record
from marin.execution.events import FailedStep, SilentReporter
from marin.execution.runner import run
from tests.chaos.journal import tell
from tests.chaos.pipeline import handles

HESITATION_VARIABLE = "MARIN_CHAOS_HESITATION"
"""How often a runner stops itself before it publishes, as a fraction."""

READY_VARIABLE = "MARIN_CHAOS_READY"
"""The folder in which each runner leaves a file when it begins to run."""


class Journalist(SilentReporter):
    """Tells what the audit counts."""

    def noted(self, id_: Any, note: str) -> None:
        tell("noted", artifact=str(id_), note=note)

    def failed(self, failed: FailedStep) -> None:
        cause = type(failed.cause).__name__ if failed.cause is not None else failed.failure.error
        trace = failed.failure.traceback[-1500:]
        tell("step_failed", artifact=str(failed.id), cause=cause, message=failed.failure.message[:300], trace=trace)


def tell_publications() -> None:
    """Each publication is told before and after: what was killed between may have happened or not."""
    real = held_record.HeldRecord.publish

    def publish(self: held_record.HeldRecord, build: Any, *arguments: Any, **options: Any) -> Any:
        known = {"artifact": str(self.id), "build": build.build_id}
        began = time.monotonic()
        tell("publishing", **known)
        if random.random() < float(os.environ.get(HESITATION_VARIABLE, "0")):
            os.kill(os.getpid(), signal.SIGSTOP)  # the worst moment: all is ready, and the lease runs out
        done = real(self, build, *arguments, **options)
        tell("published", began=began, digest=build.manifest.digest, **known)
        return done

    held_record.HeldRecord.publish = publish  # type: ignore[method-assign]


def run_once(store: str, generations: int, chance: random.Random) -> None:
    newest = min(int((time.monotonic() - float(os.environ["MARIN_CHAOS_BEGAN"])) / 4), generations - 1)
    generation = newest if chance.random() < 0.8 else chance.randint(0, newest)
    known = handles(generation)
    chosen = known if chance.random() < 0.6 else chance.sample(known, chance.randint(1, 4))
    options = RunOptions(
        prefix=store,
        lease_seconds=chance.uniform(1.0, 2.0),
        max_concurrent=chance.randint(1, 4),
        durable=chance.random() < 0.3,
        fail_fast=chance.random() < 0.1,
    )
    tell("run_began", generation=generation)
    outcome = "done"
    try:
        run(*chosen, options=options, reporter=Journalist())
    except MarinError as fault:
        outcome = type(fault).__name__
    except RunInterrupted:
        outcome = "RunInterrupted"
        raise
    except BaseException as fault:
        outcome = f"escaped: {type(fault).__name__}: {fault}"
        raise
    finally:
        tell("run_ended", outcome=outcome)


def main(store: str, generations: str, seed: str) -> None:
    tell_publications()
    Path(os.environ[READY_VARIABLE], f"ready-{os.getpid()}").touch()
    chance = random.Random(f"{seed} {os.getpid()}")
    while True:
        run_once(store, int(generations), chance)


if __name__ == "__main__":
    main(*sys.argv[1:])
