"""Print the absolute path of an artifact's data, and nothing else on stdout.

example:
  du -sh "$(marin path tokenized/poems)"
"""

from __future__ import annotations

import argparse
import os
import sys

from marin.cli.store_access import add_artifact_argument, add_store_arguments, found, opened
from marin.errors import NotBuiltError, StoreError
from marin.execution.catalog import Entry, data_url
from marin.execution.failure import first_line
from marin.execution.observe import check_data
from marin.storage.local import LocalStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_artifact_argument(parser)
    add_store_arguments(parser, json=False)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    entry = found(store, arguments.artifact)
    try:
        print(data_url(store, entry))
        if entry.record is not None and entry.build is not None:
            check_data(store, entry.record, entry.build)
    except NotBuiltError as fault:
        raise NotBuiltError(f"{fault}{_why(store, entry)}") from None
    except StoreError as gone:  # where it should be is still worth knowing
        print(f"note: {gone}", file=sys.stderr)
    return 0


def _why(store: LocalStore, entry: Entry) -> str:
    """The error of the last attempt, where it came up, and the log: a line for each."""
    lines: list[str] = []
    if entry.attempt is not None and entry.attempt.error:
        lines.append(first_line(entry.attempt.error))
        lines += [f"at {entry.attempt.frame}"] if entry.attempt.frame else []
    if entry.log is not None and os.path.exists(place := store.url(entry.log)):
        lines.append(f"log {place}")
    return "".join(f"\n  {line}" for line in lines)
