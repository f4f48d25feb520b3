"""What the commands that take a script have in common: their options, and how these reach the script."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

from marin.cli.script import module_targets, run_script
from marin.execution.graph import Step
from marin.execution.options import run_options
from marin.execution.runner import TargetsCaptured, capture_targets
from marin.execution.version_codex import VersionCodex, build_context
from marin.experiment.main import JSON_HELP, Launch, codex_of, launched, run_options_of, version_note


def add_script_arguments(parser: argparse.ArgumentParser) -> None:
    """Add SCRIPT and its output's form."""
    parser.add_argument(
        "script", metavar="SCRIPT", type=script_file, help="a Python file; its own arguments follow after --"
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


def described_targets(arguments: argparse.Namespace) -> list[Step]:
    """The handles that a run of the script would make, without running them.

    Of a script that calls ``run`` or ``resolve`` itself, those of the first call.
    """
    module: ModuleType | None = None
    note = version_note(arguments)
    with around_script(arguments) as codex, capture_targets() as caught, build_context(codex, note=note):
        with contextlib.suppress(TargetsCaptured):  # then we know what we came for
            module = run_script(arguments.script, arguments.script_arguments)
    if not caught.handles and module is not None:
        return module_targets(module, arguments.script)
    return caught.handles


def script_file(text: str) -> Path:
    """The type of a SCRIPT argument."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return path
