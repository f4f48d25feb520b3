"""The commands of ``docs/reference/cli.md``, as their parsers know them. The page's beginning is written by hand.

python -m tests.cli.cli_page            # prints what the page has to say
python -m tests.cli.cli_page --write    # writes it into the page
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marin.cli import main as command
from marin.experiment import main as experiment

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"
FIRST_HEADING = "## Commands\n"


def page() -> str:
    """The page as it has to be: its beginning as it is, the rest from the parsers."""
    beginning, found, _ = PAGE.read_text(encoding="utf-8").partition(FIRST_HEADING)
    assert found, f"{PAGE} has no {FIRST_HEADING!r}"
    return beginning + FIRST_HEADING + "\n" + "\n\n".join(sections()) + "\n"


def sections() -> Iterator[str]:
    yield "\n".join(
        [
            "| command | what it does |",
            "|---|---|",
            *(f"| [`marin {name}`](#marin-{name}) | {purpose} |" for name, purpose in command.COMMANDS.items()),
        ]
    )
    for name in command.COMMANDS:
        parser = subparser(name)
        yield f"### marin {name}"
        yield f"`{usage(name, parser)}`"
        yield from paragraphs(parser)
        yield table(parser)
    yield "### python SCRIPT"
    yield "What a script that ends with `experiment_main(build)` understands when Python runs it."
    yield table(script_parser())


def subparser(name: str) -> argparse.ArgumentParser:
    parser = command.parser_of(name)
    choices: Any = next(action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return choices[name]


def script_parser() -> argparse.ArgumentParser:
    return experiment._parser()


def arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """All but ``--help``, which every command has."""
    return [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]


def usage(name: str, parser: argparse.ArgumentParser) -> str:
    words = [f"marin {name}"]
    for action in arguments(parser):
        if not action.option_strings:
            words.append(f"[{action.metavar}]" if action.nargs in ("?", "*") else str(action.metavar))
    words.append("[OPTIONS]")
    if name in command.TAKE_SCRIPT_ARGUMENTS:
        words.append("[-- ARGUMENTS OF THE SCRIPT]")
    return " ".join(words)


def paragraphs(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What the help says, and its example."""
    for paragraph in (parser.description or "").split("\n\n"):
        if paragraph.strip():
            yield " ".join(paragraph.split())
    example = (parser.epilog or "").partition("example:")[2]
    lines = [line.strip() for line in example.splitlines() if line.strip()]
    if lines:
        yield "\n".join(["```text", *lines, "```"])


def table(parser: argparse.ArgumentParser) -> str:
    rows = [f"| `{written(action)}` | {meaning(parser, action)} |" for action in arguments(parser)]
    return "\n".join(["| argument | meaning |", "|---|---|", *rows])


def written(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(option + value for option in action.option_strings)


def meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else "which artifact"
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
