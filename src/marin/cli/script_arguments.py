"""What ``marin run`` and ``marin plan`` have in common: their options, and how these reach the script."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Generator
from pathlib import Path

from marin.execution.build_context import VersionCodex
from marin.execution.options import run_options
from marin.experiment.main import JSON_HELP, Launch, codex_of, launched, run_options_of


def add_script_arguments(parser: argparse.ArgumentParser) -> None:
    """Add SCRIPT and its output's form."""
    parser.add_argument(
        "script", metavar="SCRIPT", type=_script, help="a Python file; its own arguments follow after --"
    )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


@contextlib.contextmanager
def around_script(arguments: argparse.Namespace) -> Generator[VersionCodex]:
    """Inside, the options reach whatever the script runs. Gives the versions for its handles."""
    options = run_options_of(arguments)
    launch = Launch(options=options, version=arguments.version, overrides=dict(arguments.override))
    with contextlib.ExitStack() as stack:
        stack.enter_context(run_options(options))
        stack.enter_context(launched(launch))
        if arguments.json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield codex_of(arguments, "dev")


def _script(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return path
