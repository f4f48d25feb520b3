import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from marin.cli.main import COMMANDS, main, parser_of
from tests.cli.commands import MARIN, environment, marin, python, script


def test_without_a_command_the_help_is_shown(tmp_path: Path):
    done = marin(tmp_path)
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example_that_its_parser_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pretrain.py").touch()
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    example = capsys.readouterr().out.split("example:\n")[1]
    words = re.search(rf"marin ({command} [^)\n]+)", example)
    assert words is not None
    assert parser_of(command).parse_args(shlex.split(words[1]))


def test_the_help_is_there_in_a_blink_and_imports_nothing_heavy(tmp_path: Path):
    code = (
        "import sys\nfrom marin.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in ('jax', 'numpy', 'pyarrow', 'rich', 'cloudpickle', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert processor_time(tmp_path, *MARIN[1:], "--help") < 10 * processor_time(tmp_path, "-c", "pass")


def processor_time(folder: Path, *words: str) -> float:
    """Of five runs of Python: on a busy machine the clock would measure the others."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(5):
        python(folder, *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    "words",
    [
        ("buidl",),
        ("run",),
        ("run", "missing.py"),
        ("run", "a.py", "--version", "2026-07-01"),
        ("run", "a.py", "--override", "tokens"),
        ("run", "a.py", "--override", "tokens=latest"),
        ("run", "a.py", "--max-concurrent", "0"),
        ("rm", "tokens"),
        ("show",),
    ],
)
def test_wrong_usage_ends_with_2_and_a_short_word(tmp_path: Path, words: tuple[str, ...]):
    (tmp_path / "a.py").write_text("")
    done = marin(tmp_path, *words)
    assert done.returncode == 2
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "marin_store").exists()


def test_an_expected_error_ends_with_1_and_one_line(tmp_path: Path):
    done = marin(tmp_path, "show", "tokens")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: tokens is not in .*\n", done.stderr)


def test_an_error_of_the_script_ends_with_1_and_a_traceback_that_begins_in_the_script(tmp_path: Path):
    done = marin(tmp_path, "run", script(tmp_path, "def f():\n    1 / 0\nf()\n"))
    assert done.returncode == 1
    assert re.match(r'Traceback .*\n  File ".*/pipeline\.py", line \d+, in <module>\n', done.stderr)
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# Marin\n\nMarin is a thing.\n", "error: page.md:3: invalid syntax\n    Marin is a thing.\n"),
        ("x = 1\n  y = 2\n", "error: page.md:2: unexpected indent\n    y = 2\n"),
    ],
)
def test_a_script_that_is_no_python_is_told_with_its_line(tmp_path: Path, command: str, text: str, said: str):
    (tmp_path / "page.md").write_text(text)
    done = marin(tmp_path, command, "page.md")
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("data", [b"\0\0", b"\xff\xfe = 1\n", b"# coding: klingon\n"])
def test_a_script_that_is_no_text_is_told_without_a_traceback(tmp_path: Path, data: bytes):
    (tmp_path / "image.png").write_bytes(data)
    done = marin(tmp_path, "run", "image.png")
    assert done.returncode == 1
    assert re.match(r"error: .*image\.png", done.stderr)
    assert "Traceback" not in done.stderr


def test_a_syntax_error_in_what_the_script_imports_keeps_its_traceback(tmp_path: Path):
    (tmp_path / "helper.py").write_text("def f(:\n")
    done = marin(tmp_path, "run", script(tmp_path, "import helper\n"))
    assert "pipeline.py" in done.stderr
    assert done.stderr.endswith("SyntaxError: invalid syntax\n")


def test_an_expected_error_while_the_script_makes_handles_has_the_line_of_the_script(tmp_path: Path):
    text = "def handles():\n    return poems('Bad name!')\nmodel = handles()\n"
    path = script(tmp_path, text)
    lines = path.read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, start=1) if text.startswith("    return ArtifactStep("))
    for command in ("run", "plan"):
        done = marin(tmp_path, command, path)
        assert done.returncode == 1
        assert re.search(rf"^error: .*Bad name!.*\n  at pipeline\.py:{line} in poems\n$", done.stderr, re.DOTALL)


def test_an_error_of_the_run_has_no_line_as_the_call_of_the_run_is_not_at_fault(tmp_path: Path):
    text = "from marin.execution import run\nrun(poems('a', run=write, version='2026.07.01', pin='/missing/poems'))\n"
    done = marin(tmp_path, "run", script(tmp_path, text.replace("run=write, ", "run=None, ")))
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "\n  at " not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [50, 80])
def test_help_fits_the_terminal_except_its_example(tmp_path: Path, command: str, columns: int):
    text = marin(tmp_path, command, "--help", COLUMNS=str(columns)).stdout
    told, _, example = text.partition("example:\n")
    assert all(len(line) <= columns for line in told.splitlines())
    assert re.match(r"  (.*\()?.*marin .*\n$", example)  # in one line, to be copied


def test_the_options_of_a_plan_are_those_that_mean_something_there(tmp_path: Path):
    script(tmp_path, "model = poems()\n", name="a.py")
    for option in (["--max-concurrent", "2"], ["--fail-fast"]):
        assert option[0] in marin(tmp_path, "run", "--help").stdout
        assert option[0] not in marin(tmp_path, "plan", "--help").stdout
        done = marin(tmp_path, "plan", "a.py", *option)
        assert done.returncode == 2
        assert done.stderr.startswith("usage: marin plan ")
        assert f"marin plan: error: unrecognized arguments: {' '.join(option)}\n" in done.stderr


@pytest.mark.parametrize("command", ["run", "plan", "why"])
def test_an_argument_that_may_be_meant_for_the_script_is_told_where_to_stand(tmp_path: Path, command: str):
    words = ["raw/poems"] if command == "why" else []
    script(tmp_path, "model = poems()\n")
    done = marin(tmp_path, command, *words, "pipeline.py", "--foo", "3")
    assert done.returncode == 2
    assert f"follows after --, as in: marin {command} SCRIPT -- --foo 3\n" in done.stderr


def test_a_mistyped_word_is_answered_with_what_may_have_been_meant(tmp_path: Path):
    path = script(tmp_path, "from marin.experiment.main import experiment_main\nexperiment_main(poems)\n")
    for done, meant in [
        (marin(tmp_path, "rnu", path), "there is no command 'rnu' (did you mean 'run'?)"),
        (marin(tmp_path, "run", path, "--overide", "a=dev"), "--overide a=dev (did you mean '--override'?)"),
        (marin(tmp_path, "ls", "--prefx=x"), "unrecognized arguments: --prefx=x (did you mean '--prefix'?)\n"),
        (python(tmp_path, path, "--plam"), "unrecognized arguments: --plam (did you mean '--plan'?)\n"),
    ]:
        assert done.returncode == 2
        assert meant in done.stderr
    assert "did you mean" not in marin(tmp_path, "zzz").stderr


def test_json_is_described_as_what_it_leaves_on_stdout(tmp_path: Path):
    path = script(tmp_path, "from marin.experiment.main import experiment_main\nexperiment_main(poems)\n")
    texts = [marin(tmp_path, "run", "--help"), marin(tmp_path, "plan", "--help"), python(tmp_path, path, "--help")]
    run, plan, own = [
        re.sub(r"\s+", " ", re.search(r"--json( .*?\n)(?=\n|  -|$)", done.stdout, re.DOTALL)[1]) for done in texts
    ]
    assert run == plan == " JSON lines on stdout, one object a line; what the script prints goes to stderr "
    assert "what the script itself prints before and after them to stdout" in own


def test_the_exit_code_of_a_script_is_kept(tmp_path: Path):
    assert marin(tmp_path, "run", script(tmp_path, "import sys\nsys.exit(7)\n")).returncode == 7


def test_a_reader_that_has_had_enough_is_no_fault(tmp_path: Path):
    marin(tmp_path, "run", script(tmp_path, "all = [poems(f'raw/p{n}') for n in range(5)]\n"))
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*MARIN, "ls"], cwd=tmp_path, env=environment(), stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_unicode_fails_nothing(tmp_path: Path):
    path = script(tmp_path, "model = poems(version='2026.07.01', lines=3)\n")
    marin(tmp_path, "run", path)
    path.write_text(path.read_text().replace("lines=3)", "lines=4)"))
    done = marin(tmp_path, "plan", path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 \\u2192 4" in done.stdout


def test_the_store_is_the_option_else_the_variable_else_the_default(tmp_path: Path):
    path = script(tmp_path, "model = poems()\n")
    for words, environ, origin in [
        (["--prefix", "one"], {"MARIN_PREFIX": "two"}, "one (--prefix)"),
        ([], {"MARIN_PREFIX": "two"}, "two (MARIN_PREFIX)"),
        ([], {}, "marin_store (default ./marin_store)"),
    ]:
        done = marin(tmp_path, "run", path, *words, **environ)
        assert f"store: {tmp_path}/{origin}" in done.stderr
        assert (tmp_path / origin.split()[0] / ".marin" / "format").exists()


def test_json_of_every_command_is_json(tmp_path: Path):
    path = script(tmp_path, "print('chatter')\nmodel = poems('tok/poems', poems())\n")
    planned = marin(tmp_path, "plan", path, "--json")
    assert json.loads(planned.stdout)["summary"]["build"] == 2
    assert "chatter" in planned.stderr
    events = [json.loads(line) for line in marin(tmp_path, "run", path, "--json").stdout.splitlines()]
    assert events[0]["event"] == "planned"
    assert events[-1] == {"event": "ended", "interrupted": False}
    assert [event["step"] for event in events if event["event"] == "finished"] == ["raw/poems@dev", "tok/poems@dev"]
    listed = json.loads(marin(tmp_path, "ls", "--json").stdout)
    assert [(entry["name"], entry["state"]) for entry in listed] == [("raw/poems", "built"), ("tok/poems", "built")]
    shown = json.loads(marin(tmp_path, "show", "tok/poems", "--json").stdout)
    assert shown["record"]["build"]["result"] == {"lines": 3}
    assert json.loads(marin(tmp_path, "ls", "nothing", "--json").stdout) == []
