"""End the step that builds an artifact, wherever it runs, and nothing else of its run.

Its builder notices within about a second. A step in a process of its own is told to save its work, and is killed ten
seconds later, a training five minutes later; one in a thread is left to itself, and what it still writes counts for
nothing. What needs the artifact is not made. Other runs that wait for it end their step too; a new run builds it.

Exit code 0 if the step was stopped, else 1.

example:
  marin stop checkpoints/poet@2026.07.01 --wait
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from marin.cli.store_access import add_artifact_argument, add_store_arguments, found, opened
from marin.execution.catalog import Entry
from marin.execution.meter import duration
from marin.execution.stopping import Answer, Asked, answer, ask_to_stop
from marin.storage.local import LocalStore
from marin.storage.owner import describe

_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 15.0
"""How long to wait without --wait: until it is noticed, and the grace is over."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_artifact_argument(parser)
    parser.add_argument(
        "--wait", action="store_true", help=f"until it has ended (else {_PATIENCE_SECONDS:.0f} seconds at most)"
    )
    add_store_arguments(parser, json=True)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    entry = found(store, arguments.artifact)
    asked = ask_to_stop(store, entry)
    if isinstance(asked, Asked):
        holder = describe(asked.entry.attempt.lease.owner) if asked.entry.attempt is not None else "its builder"
        print(f"asked {holder} to stop {entry.id}", file=sys.stderr)
        came, now = _wait(store, asked, None if arguments.wait else _PATIENCE_SECONDS)
    else:
        came, now = asked, entry
    if arguments.json:
        print(json.dumps({"id": str(entry.id), "answer": came.value, "state": now.condition.value if now else None}))
    else:
        print(_told(entry, came, now), file=sys.stdout if came is Answer.STOPPED else sys.stderr)
    return 0 if came is Answer.STOPPED else 1


def _wait(store: LocalStore, asked: Asked, patience: float | None) -> tuple[Answer, Entry | None]:
    began = time.monotonic()
    while True:
        came, now = answer(store, asked)
        if came is not Answer.ASKED or (patience is not None and time.monotonic() - began > patience):
            return came, now
        time.sleep(_POLL_SECONDS)


def _told(entry: Entry, came: Answer, now: Entry | None) -> str:
    state = now.condition.value if now is not None else "not in the store"
    owner = describe(entry.attempt.lease.owner) if entry.attempt is not None else "its builder"
    if came is Answer.STOPPED:
        return f"{entry.id}: stopped"
    if came is Answer.ASKED:
        return (
            f"{entry.id}: has not ended after {duration(_PATIENCE_SECONDS)}: its builder may hang or be out of reach. "
            "Runs that wait for it end their step too once its lease is over. "
            "Go on waiting with --wait"
        )
    if came is Answer.ABANDONED and now is not None and now.attempt is not None and now.attempt.stop is not None:
        return (
            f"{entry.id}: nobody builds it: {owner} is gone. Runs that wait for it end their step; a new run builds it"
        )
    if came is Answer.ABANDONED:
        return f"{entry.id}: nobody builds it: {owner} is gone. The next run takes over"
    if came is Answer.ENDED:
        return f"{entry.id}: ended before it could be stopped: it is {state}"
    return f"{entry.id}: nobody builds it: it is {state}"
