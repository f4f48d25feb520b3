"""The ``marin`` command. Each subcommand is a module of its own, imported when it is used."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast

EXIT_FAILED = 1

COMMANDS = {
    "run": "build what a script describes",
    "plan": "say what a run would do, and why; write nothing",
    "why": "explain why a step would be built, served or refused",
    "ls": "list what is in the store",
    "show": "tell all that is known about an artifact",
    "diff": "compare two artifacts, side by side",
    "export": "write a trained model as Hugging Face's files",
    "path": "print where an artifact's data lies",
    "log": "print the log of an artifact's build",
    "stop": "end the step that builds an artifact",
    "rm": "move an artifact to the store's trash",
}
"""The subcommands, each a module of this package, and what they do."""

TAKE_SCRIPT_ARGUMENTS = ("run", "plan", "why")
"""Commands whose script gets the words after ``--``."""


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
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
    except BrokenPipeError:
        # No fault, except for a script, which has been cut short.
        code = EXIT_FAILED if words[:1] == ["run"] else 0
    except (Exception, KeyboardInterrupt) as fault:  # noqa: BLE001  # the outermost place: nothing above would tell it
        from marin.experiment.ending import tell_fault  # noqa: PLC0415  # loads what help and usage errors don't need

        code = EXIT_FAILED
        _flush_stdout()  # what was printed comes before why it ended
        with contextlib.suppress(BrokenPipeError):
            code = tell_fault(fault, sys.stderr)
    _flush_stdout()
    return code


def _dispatch(argv: Sequence[str]) -> int:
    name = argv[0] if argv else ""
    script_arguments: Sequence[str] = ()
    if name in TAKE_SCRIPT_ARGUMENTS and "--" in argv:
        cut = argv.index("--")
        argv, script_arguments = argv[:cut], argv[cut + 1 :]
    parser = parser_of(name)
    if name and name not in COMMANDS and not name.startswith("-"):
        from marin.experiment.command_line import near_word  # noqa: PLC0415  # loads what only a mistake needs

        parser.error(f"there is no command {name!r}{near_word(name, COMMANDS)}: 'marin --help' lists them")
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        _refuse(getattr(arguments, "parser", parser), name, unknown)
    if name not in COMMANDS:
        parser.print_help()
        return 2 if argv else 0
    arguments.script_arguments = script_arguments
    return _load(name).execute(arguments)


def _refuse(parser: argparse.ArgumentParser, name: str, unknown: Sequence[str]) -> None:
    """Said by the command's own parser, so that its usage is shown, not that of `marin`."""
    from marin.experiment.command_line import unrecognized  # noqa: PLC0415  # loads what only a mistake needs

    hint = ""
    if name in TAKE_SCRIPT_ARGUMENTS:
        hint = f"\nwhat the script itself is to get follows after --, as in: marin {name} SCRIPT -- {' '.join(unknown)}"
    parser.error(unrecognized(parser, unknown) + hint)


def _load(name: str) -> Command:
    return cast("Command", importlib.import_module(f"marin.cli.{name}"))


def parser_of(chosen: str) -> argparse.ArgumentParser:
    """The parser of all commands. Only the chosen one knows its options, as the others are not imported."""
    parser = argparse.ArgumentParser(
        prog="marin",
        description="Language-model pipelines made of lazy, versioned artifacts.",
        epilog="example:\n  marin run examples/01_first_pipeline.py\n\n'marin COMMAND --help' tells more.",
        formatter_class=_Paragraphs,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, purpose in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=purpose)
            continue
        command = _load(name)
        description, _, example = (command.__doc__ or "").strip().rpartition("\n\n")
        chosen_parser = commands.add_parser(
            name,
            help=purpose,
            description=description,
            epilog=example,
            formatter_class=_Paragraphs,
            allow_abbrev=False,  # a script has options of its own, which may begin alike
        )
        command.add_arguments(chosen_parser)
        chosen_parser.set_defaults(parser=chosen_parser)
    return parser


class _Paragraphs(argparse.HelpFormatter):
    """Fits paragraphs to the columns there are; an example is shown as it is, to be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            paragraph
            if paragraph.startswith("example:")
            else super(_Paragraphs, self)._fill_text(paragraph, width, indent)
            for paragraph in text.split("\n\n")
        )


class _ShowVersion(argparse.Action):
    """Looks the version up when it is asked for, which takes longer than all the rest of the help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415  # see above

        print(f"marin {version('marin')}")
        parser.exit()


def _flush_stdout() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it has had enough, as in `marin ls | head`. Python flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
