"""Print the log of an artifact's last attempt, else of its build. With -f, go on until the attempt ends.

example:
  marin log -f checkpoints/poet
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import BinaryIO

from marin.cli.store_access import add_artifact_argument, add_store_arguments, found, opened
from marin.errors import NotBuiltError
from marin.execution.catalog import Condition, Entry, read_entry
from marin.storage.local import LocalStore

_POLL_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_artifact_argument(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more until the attempt ends")
    add_store_arguments(parser, json=False)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    entry = found(store, arguments.artifact)
    if entry.fault is not None:
        raise entry.fault
    if entry.log is None:
        raise NotBuiltError(f"{entry.id} has no log: its step ran inside the process of the run, which printed it")
    follow = arguments.follow and _is_running(entry)
    place = store.url(entry.log)
    print(f"log of {entry.id}: {place}", file=sys.stderr)
    file = _opened(store, entry, place, follow=follow)
    copied = 0
    if file is not None:
        with file:
            copied = _copy(file)
            while follow:
                time.sleep(_POLL_SECONDS)
                # Asked before we read: what was written until the end is then still read.
                follow = _still(store, entry)
                copied += _copy(file)
    if not copied:
        print("the log is empty", file=sys.stderr)
    return 0


def _opened(store: LocalStore, entry: Entry, place: str, *, follow: bool) -> BinaryIO | None:
    while True:
        try:
            return open(place, "rb")
        except FileNotFoundError:
            if not (follow and _still(store, entry)):
                return None
            time.sleep(_POLL_SECONDS)


def _copy(file: BinaryIO) -> int:
    """Print what is there, and say how many bytes that were."""
    copied = 0
    while part := file.read(1 << 16):
        copied += sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()
    return copied


def _is_running(entry: Entry) -> bool:
    return entry.condition in (Condition.BUILDING, Condition.REBUILDING)


def _still(store: LocalStore, entry: Entry) -> bool:
    now = read_entry(store, entry.id)
    if now is None or now.attempt is None or entry.attempt is None or not _is_running(now):
        return False
    return now.attempt.build_id == entry.attempt.build_id
