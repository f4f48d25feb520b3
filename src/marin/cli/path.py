"""Print the absolute path of an artifact's data, and nothing else on stdout.

example:
  du -sh "$(marin path tokenized/poems)"
"""

from __future__ import annotations

import argparse

from marin.cli.store_access import add_artifact_argument, add_store_arguments, found, opened
from marin.execution.catalog import data_url


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_artifact_argument(parser)
    add_store_arguments(parser, json=False)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    print(data_url(store, found(store, arguments.artifact)))
    return 0
