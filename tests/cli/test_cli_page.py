"""The reference of the command line is what the parsers say: every command, every option, and nothing else."""

import re

import pytest

from marin.cli.main import COMMANDS
from tests.cli import cli_page


def test_the_page_is_what_the_parsers_say():
    shown = cli_page.PAGE.read_text(encoding="utf-8")
    assert shown == cli_page.page(), "write it anew with: python -m tests.cli.cli_page --write"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_every_argument_a_meaning(name):
    section = re.search(rf"^### marin {name}\n(.*?)(?=^###|\Z)", cli_page.page(), re.MULTILINE | re.DOTALL)[1]
    assert re.search(rf"^```text\n.*marin {name} ", section, re.MULTILINE)
    rows = re.findall(r"^\| `(.+?)` \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) >= 1
    assert [argument for argument, meaning in rows if not meaning] == []


def test_options_are_written_with_their_values():
    run = cli_page.table(cli_page.subparser("run"))
    assert "| `SCRIPT` | a Python file; its own arguments follow after -- |" in run
    assert "| `--override NAME=VERSION` |" in run
    assert "| `--fail-fast` |" in run
    assert "| `-f, --follow` |" in cli_page.table(cli_page.subparser("log"))
