"""Build what SCRIPT describes; what is built already is served.

Targets are what its experiment_main(build) returns, else the handles at the top of the script that no other one
depends on. A script that calls run() or resolve() itself does so, with these options.

example:
  marin run pretrain.py --override tokenized/poems=anna-dev --max-concurrent 2
"""

from __future__ import annotations

import argparse
import sys

from marin.cli.script import module_targets, run_script
from marin.cli.script_arguments import add_script_arguments, around_script
from marin.errors import LeftOutError
from marin.execution.console import json_reporter, reporting, terminal_reporter
from marin.execution.events import Reporter
from marin.execution.runner import run
from marin.execution.version_codex import build_context
from marin.experiment.main import add_run_arguments, tell_left_out, version_note


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_script_arguments(parser)
    add_run_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    stdout = sys.stdout
    runs = 0

    def make_reporter() -> Reporter:
        nonlocal runs
        runs += 1
        return json_reporter(stdout) if arguments.json else terminal_reporter()

    with around_script(arguments) as codex, reporting(make_reporter):
        try:
            with build_context(codex, note=version_note(arguments)):
                module = run_script(arguments.script, arguments.script_arguments)
            if not runs:
                run(*module_targets(module, arguments.script))
        except LeftOutError as left_out:
            tell_left_out(left_out)
    return 0
