"""What the commands that read a store have in common."""

from __future__ import annotations

import argparse
import os
import sys

from marin.errors import NotBuiltError
from marin.execution.catalog import Entry, find
from marin.storage.local import LocalStore
from marin.storage.prefix import Prefix, open_store, resolve_prefix, working_folder


def add_store_arguments(parser: argparse.ArgumentParser, *, json: bool) -> None:
    """Add ``--prefix``, and ``--json`` where a program would read the answer."""
    parser.add_argument("--prefix", metavar="PATH", help="the store (default: MARIN_PREFIX, else ./marin_store)")
    if json:
        parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def add_artifact_argument(parser: argparse.ArgumentParser) -> None:
    """Add NAME[@VERSION]."""
    parser.add_argument("artifact", metavar="NAME[@VERSION]", help="without version: the newest fixed one, else dev")


def opened(arguments: argparse.Namespace) -> tuple[Prefix, LocalStore]:
    """The store that the arguments, or the environment, name. Raises ``NotBuiltError`` if ``--prefix`` has none."""
    prefix = resolve_prefix(arguments.prefix, environ=os.environ, cwd=working_folder())
    if arguments.prefix is not None and not os.path.isdir(prefix.location):
        raise NotBuiltError(
            f"there is no store at {prefix.location} ({prefix.origin}): a run makes it, or is it elsewhere?"
        )
    return prefix, open_store(prefix.location)


def found(store: LocalStore, text: str) -> Entry:
    """The artifact that NAME[@VERSION] means. Says on stderr which version was taken if none was given."""
    entry = find(store, text)
    if text.strip("/") == entry.id.name:
        kind = "no fixed version is there, so this is" if entry.id.is_mutable else "the newest fixed version is"
        print(f"{text}: {kind} {entry.id.version}", file=sys.stderr)
    return entry
