"""Move an artifact to the store's trash: nothing is deleted. Asks on a terminal; elsewhere --yes is needed.

Refused while it is being built, and, without --force, if other artifacts were made from it.

example:
  marin rm tokenized/poems@2026.07.01 --yes
"""

from __future__ import annotations

import argparse
import sys

from marin.cli.store_access import add_store_arguments, opened
from marin.errors import InvalidNameError, InvalidVersionError
from marin.execution.catalog import Entry, dependents, find
from marin.execution.identity import ArtifactId, parse_artifact_id
from marin.execution.meter import size
from marin.execution.removal import remove


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("artifact", metavar="NAME@VERSION", type=_id, help="what to remove")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--force", action="store_true", help="even if others were made from it")
    add_store_arguments(parser, json=False)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    id_: ArtifactId = arguments.artifact
    entry = find(store, str(id_))
    if not arguments.yes:
        readers = dependents(store, id_)
        if not sys.stdin.isatty():
            flags = "--yes --force" if readers and not arguments.force else "--yes"
            what = f"{_question(entry, readers)} There is no terminal to ask on: say {flags} to do it"
            print(f"error: {what}", file=sys.stderr)
            return 2
        if not readers or arguments.force:
            print(f"{_question(entry, readers)} [y/N] ", end="", flush=True, file=sys.stderr)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                print("nothing was removed", file=sys.stderr)
                return 1
    place = remove(store, id_, force=arguments.force)
    print(f"{id_} is now in {place}; to bring it back, move that folder to {store.url(id_.address)}")
    return 0


def _question(entry: Entry, readers: list[ArtifactId]) -> str:
    build = entry.build
    amount = f", {size(build.manifest.bytes)}" if build is not None and build.manifest is not None else ""
    made = f" {', '.join(map(str, readers))} {'was' if len(readers) == 1 else 'were'} made from it." if readers else ""
    return f"Remove {entry.id} ({entry.condition.value}{amount})?{made}"


def _id(text: str) -> ArtifactId:
    try:
        return parse_artifact_id(text)
    except (InvalidNameError, InvalidVersionError) as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault
