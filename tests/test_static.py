"""Types, style and format: what no test that runs the code would tell."""

import json
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


def test_a_wrong_type_of_a_pipeline_would_be_found(tmp_path):
    wrong = {
        "assert_type(apply('x', 'my.poems:write', artifact_type=Checkpoint), ArtifactStep[TokenizedCache])": "mismatch",
        "assert_type(run(tokens, model), tuple[TokenizedCache, TokenizedCache])": "mismatch",
        "resolve(tokens).lines": 'Cannot access attribute "lines" for class "TokenizedCache"',
        "def build_config(ctx):\n    return {}": "missing",
        "class Own(ArtifactStep):\n    def build_config(self) -> None: ...": "overrides",
    }
    head, *_ = (ROOT / "tests/typing/pipelines.py").read_text().partition("# Plain functions")
    script = tmp_path / "wrong.py"
    script.write_text(head + "\n\n".join(wrong))
    tool = Path(sys.executable).with_name("basedpyright")
    command = [tool, "--pythonpath", sys.executable, "--outputjson", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [error for error in json.loads(done.stdout)["generalDiagnostics"] if error["severity"] == "error"]
    first = head.count("\n")
    for place, (code, message) in enumerate(wrong.items()):
        lines = range(first, first + code.count("\n") + 1)
        first += code.count("\n") + 2
        found = [error["message"] for error in errors if error["range"]["start"]["line"] in lines]
        assert any(message in text for text in found), (place, code, found)


def test_the_linter_finds_nothing():
    check("ruff", "check", "--no-cache", "src", "tests", "examples", "benchmarks")


def test_the_code_is_formatted():
    check("ruff", "format", "--no-cache", "--check", "src", "tests", "examples", "benchmarks")
