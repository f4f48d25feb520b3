"""The ``marin`` command. Each subcommand is a module of its own, imported when it is used."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Protocol, cast

from marin.experiment.ending import tell_fault

COMMANDS = {
    "run": "build what a script describes",
    "plan": "say what a run would do, and why; write nothing",
    "ls": "list what is in the store",
    "show": "tell all that is known about an artifact",
    "path": "print where an artifact's data lies",
    "log": "print the log of an artifact's build",
    "rm": "move an artifact to the store's trash",
}
"""The subcommands, each a module of this package, and what they do."""


class Command(Protocol):
    """What a module of a subcommand has. Its docstring is the help, with an example as its last paragraph."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def execute(self, arguments: argparse.Namespace) -> int:
        """The exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The exit code; usage errors and the exits of scripts raise ``SystemExit``."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an arrow must not fail a terminal without unicode
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_is_gone()
    except (Exception, KeyboardInterrupt) as fault:  # noqa: BLE001  # the outermost place: nothing above would tell it
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        return tell_fault(fault, sys.stderr)
    return code


def _dispatch(argv: Sequence[str]) -> int:
    name = argv[0] if argv else ""
    script_arguments: Sequence[str] = ()
    if name in ("run", "plan") and "--" in argv:
        cut = argv.index("--")
        argv, script_arguments = argv[:cut], argv[cut + 1 :]
    command = _load(name) if name in COMMANDS else None
    parser = _parser(name, command)
    arguments = parser.parse_args(argv)
    if command is None:
        parser.print_help()
        return 2 if argv else 0
    arguments.script_arguments = script_arguments
    return command.execute(arguments)


def _load(name: str) -> Command:
    return cast("Command", importlib.import_module(f"marin.cli.{name}"))


def _parser(chosen: str, command: Command | None) -> argparse.ArgumentParser:
    """The parser of all commands. Only the chosen one knows its options, as the others are not imported."""
    parser = argparse.ArgumentParser(
        prog="marin",
        description="Language-model pipelines made of lazy, versioned artifacts.",
        epilog="example:\n  marin run examples/01_first_pipeline.py\n\n'marin COMMAND --help' tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"marin {version('marin')}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, purpose in COMMANDS.items():
        if name != chosen or command is None:
            commands.add_parser(name, help=purpose)
            continue
        description, _, example = (command.__doc__ or "").strip().rpartition("\n\n")
        chosen_parser = commands.add_parser(
            name,
            help=purpose,
            description=description,
            epilog=example,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(chosen_parser)
    return parser


def _reader_is_gone() -> int:
    """Whoever read our output has had enough, as in ``marin ls | head``: no fault, and nothing more to say."""
    # Python flushes once more at its end, which must not fail either.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
