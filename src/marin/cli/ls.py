"""List what is in the store, with state, size and time. PATTERN: part of a name, or a glob over name@version.

example:
  marin ls 'tokenized/*'
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from marin.cli.store_access import add_store_arguments, opened
from marin.errors import StoreError
from marin.execution.catalog import Condition, Entry, entries
from marin.execution.failure import first_line
from marin.execution.meter import size
from marin.execution.record import data_path
from marin.execution.redaction import shown_place
from marin.execution.tally import absolute
from marin.storage.owner import describe

_SHORTEST_NOTE = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="", help="which artifacts (default: all)")
    add_store_arguments(parser, json=True)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    prefix, store = opened(arguments)
    closed: list[StoreError] = []
    listed = [entry for entry in entries(store, closed.append) if _matches(entry, arguments.pattern)]
    for fault in closed:
        print(f"note: {fault}", file=sys.stderr)
    if arguments.json:
        print(json.dumps([_as_json(entry, prefix.location) for entry in listed], indent=1))
        return 0
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in _table([_row(entry) for entry in listed], width):
        print(line)
    if not listed:
        what = f"nothing that matches {arguments.pattern!r}" if arguments.pattern else "nothing"
        missing = "" if os.path.isdir(prefix.location) else ": there is no such store yet"
        print(f"{what} is in {prefix.location} ({prefix.origin}){missing}", file=sys.stderr)
        if prefix.hint:
            print(f"note: {prefix.hint}", file=sys.stderr)
    return 0


def _matches(entry: Entry, pattern: str) -> bool:
    if any(char in pattern for char in "*?["):
        return fnmatch.fnmatchcase(entry.id.name, pattern) or fnmatch.fnmatchcase(str(entry.id), pattern)
    return pattern in str(entry.id)


def _row(entry: Entry) -> list[str]:
    build, attempt = entry.build, entry.attempt
    amount = size(build.manifest.bytes) if build is not None and build.manifest is not None else ""
    when = build.finished if build is not None else attempt.started if attempt is not None else ""
    note = ""
    if entry.condition in (Condition.BUILDING, Condition.REBUILDING) and attempt is not None:
        note = f"by {describe(attempt.lease.owner)}"
    elif entry.condition is Condition.FAILED and attempt is not None:
        note = first_line(attempt.error or "")
    elif entry.fault is not None:
        note = first_line(str(entry.fault))
    elif build is not None and build.source is not None:
        note = f"adopted from {shown_place(build.source)}"
    return [str(entry.id), entry.condition.value, amount, when, note]


def _table(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Aligned columns. A narrow terminal gets a shorter note, then fewer columns, but always the name and the state."""
    columns = 5
    while True:
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(columns)]
        needed = sum(widths[:4]) + 2 * (columns - 1) + (min(_SHORTEST_NOTE, widths[4]) if columns == 5 else 0)
        if width is None or needed <= width or columns == 2:
            break
        columns -= 1
    lines = ["  ".join(f"{text:<{widths[at]}}" for at, text in enumerate(row[:columns])).rstrip() for row in rows]
    if width is None or columns == 2:  # name and state are never cut
        return lines
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _as_json(entry: Entry, prefix: str) -> dict[str, Any]:
    build, attempt = entry.build, entry.attempt
    return {
        "name": entry.id.name,
        "version": entry.id.version,
        "state": entry.condition.value,
        "path": None if build is None else absolute(prefix, data_path(entry.id.address, build)),
        "bytes": build.manifest.bytes if build is not None and build.manifest is not None else None,
        "finished": None if build is None else build.finished,
        "started": attempt.started if attempt is not None else None,
        "by": describe(attempt.lease.owner) if attempt is not None else None,
        "error": attempt.error if attempt is not None else str(entry.fault) if entry.fault is not None else None,
    }
