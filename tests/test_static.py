"""Types, style and format: what no test that runs the code would tell."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check(*command):
    tool, *arguments = command
    done = subprocess.run(
        [Path(sys.executable).with_name(tool), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_complete_and_right():
    check("basedpyright", "--pythonpath", sys.executable)


def test_the_linter_finds_nothing():
    check("ruff", "check", "--no-cache", "src", "tests", "examples", "benchmarks")


def test_the_code_is_formatted():
    check("ruff", "format", "--no-cache", "--check", "src", "tests", "examples", "benchmarks")
