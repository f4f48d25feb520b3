"""Say what a run of SCRIPT would do. Nothing is written.

One line for each step: what would happen to it, its address (where the artifact lies below the store), the reason.

Targets are found as by 'marin run'. Of a script that calls run() itself the first call is shown. Ends with 1 if the
run would be refused.

example:
  marin plan pretrain.py --version dev
"""

from __future__ import annotations

import argparse

from marin.cli.script_arguments import add_script_arguments, described_targets
from marin.experiment.main import add_plan_arguments, print_plan, run_options_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_script_arguments(parser)
    add_plan_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    handles = described_targets(arguments)
    return print_plan(handles, run_options_of(arguments), as_json=arguments.json)
