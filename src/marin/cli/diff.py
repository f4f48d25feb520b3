"""Compare two artifacts: recipe, inputs, result, data, code and provenance side by side, as their records tell.

B may be a version alone: then it is another version of A. Shown is what differs; numbers with their difference.

example:
  marin diff tokenized/poems@2026.07.01 2026.07.02
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from typing import Any

from marin.cli.diff_text import comparison_as_json, comparison_lines
from marin.cli.store_access import add_store_arguments, found, opened
from marin.execution.catalog import Entry
from marin.execution.comparison import compare_records
from marin.execution.identity import checked_version, is_version
from marin.execution.plan_text import paint
from marin.execution.redaction import redacted_record, secret_values

_DIGITS = re.compile(r"[vV]?[0-9][0-9._-]*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("a", metavar="A", help="NAME[@VERSION]; without version: the newest fixed one, else dev")
    parser.add_argument("b", metavar="B", help="NAME[@VERSION], or a version of A")
    parser.add_argument("--all", action="store_true", help="also what is the same")
    add_store_arguments(parser, json=True)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    _, store = opened(arguments)
    one = found(store, arguments.a)
    other = found(store, _reference(arguments.b, one.id.name))
    names = (str(one.id), str(other.id))
    compared = compare_records(_record(one), _record(other), names)
    if arguments.json:
        print(json.dumps(comparison_as_json(compared, names, everything=arguments.all), indent=1))
        return 0
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    color = on_terminal and not os.environ.get("NO_COLOR")
    lines = comparison_lines(compared, names, everything=arguments.all, width=width)
    print(paint(list(lines), color=color), end="")
    return 0


def _reference(text: str, name: str) -> str:
    """What ``text`` means beside the artifact ``name``: another one, or a version of it."""
    if _DIGITS.fullmatch(text):
        checked_version(text, name)  # a mistyped version is no artifact's name
    return f"{name}@{text}" if is_version(text, name) else text


def _record(entry: Entry) -> Any:
    """The record as it lies there, without secrets: also what this Marin does not know of it."""
    if entry.fault is not None:
        raise entry.fault
    return redacted_record(json.loads(entry.raw), secret_values(os.environ))
