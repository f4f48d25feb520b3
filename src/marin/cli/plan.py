"""Say what a run of SCRIPT would do. Nothing is written.

One line for each step: what would happen to it, its address (where the artifact lies below the store), the reason.

Targets are found as by 'marin run'. Of a script that calls run() itself the first call is shown. Ends with 1 if the
run would be refused.

example:
  marin plan pretrain.py --version dev
"""

from __future__ import annotations

import argparse
import contextlib
from types import ModuleType

from marin.cli.script import module_targets, run_script
from marin.cli.script_arguments import add_script_arguments, around_script
from marin.execution.build_context import build_context
from marin.execution.runner import TargetsCaptured, capture_targets
from marin.experiment.main import add_plan_arguments, print_plan, run_options_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_script_arguments(parser)
    add_plan_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Carry out the command. Returns the exit code."""
    module: ModuleType | None = None
    with around_script(arguments) as codex, capture_targets() as caught, build_context(codex):
        with contextlib.suppress(TargetsCaptured):  # then we know what we came for
            module = run_script(arguments.script, arguments.script_arguments)
    handles = caught.handles
    if not handles and module is not None:
        handles = module_targets(module, arguments.script)
    return print_plan(handles, run_options_of(arguments), as_json=arguments.json)
