"""Print the log of an artifact's last attempt, else of its build. With -f, go on until the attempt ends.

Of a very long log the beginning and the end are kept.

example:
  marin log -f checkpoints/poet
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from typing import BinaryIO

from marin.cli.store_access import add_artifact_argument, add_store_arguments, found, opened
from marin.errors import NotBuiltError
from marin.execution.catalog import Condition, Entry, read_entry
from marin.execution.logs import log_parts
from marin.storage.local import LocalStore

_POLL_SECONDS = 0.2

_HARMFUL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\x1b(?!\[[0-9;]*m)|\xc2(?:[\x80-\x9f]|\Z)")
"""What a terminal would obey, but for colors, tabs and line ends. Two bytes: U+0080 to U+009F, which may be parted."""


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
    copied = _copy_older(place)
    if file is not None:
        copied += _copy(file)
        while follow:
            time.sleep(_POLL_SECONDS)
            # Asked before we read: what was written until the end is then still read.
            follow = _still(store, entry)
            copied += _copy(file)
            if (newer := _continued(file, place)) is not None:
                file.close()
                file = newer
                copied += _copy(file)
        file.close()
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


def _copy_older(place: str) -> int:
    """Print the parts of a long log that came before what lies at ``place``."""
    copied = 0
    for part in log_parts(place):
        if part != place:
            # It may just give way to the next one.
            with contextlib.suppress(FileNotFoundError), open(part, "rb") as file:
                copied += _copy(file)
    return copied


def _continued(file: BinaryIO, place: str) -> BinaryIO | None:
    """The part that was begun meanwhile, once all of ``file`` was read."""
    with contextlib.suppress(FileNotFoundError):
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(place)):
            _copy(file)  # what was written between our last look and the change
            return open(place, "rb")
    return None


def _copy(file: BinaryIO) -> int:
    """Print what is there, and say how many bytes that were. A terminal gets nothing that could change how it works."""
    copied = 0
    on_terminal = sys.stdout.isatty()
    while part := file.read(1 << 16):
        if part.endswith(b"\xc2"):  # the first half of a character
            part += file.read(1)
        copied += len(part)
        sys.stdout.buffer.write(_HARMFUL.sub(b"?", part) if on_terminal else part)
    sys.stdout.buffer.flush()
    return copied


def _is_running(entry: Entry) -> bool:
    return entry.condition in (Condition.BUILDING, Condition.REBUILDING)


def _still(store: LocalStore, entry: Entry) -> bool:
    now = read_entry(store, entry.id)
    if now is None or now.attempt is None or entry.attempt is None or not _is_running(now):
        return False
    return now.attempt.build_id == entry.attempt.build_id
