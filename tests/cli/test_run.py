import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import MARIN, Terminal, environment, marin, script, start, until
from tests.executors.processes import PATIENCE

BUILD = """
from marin.experiment.main import experiment_main

def build():
    return poems("tok/poems", poems())

if __name__ == "__main__":
    artifact = experiment_main(build, version="2026.07.01")
    print("lines:", artifact.lines, "at", artifact.path)
"""


def built(folder: Path) -> list[str]:
    return [f"{entry['name']}@{entry['version']}" for entry in json.loads(marin(folder, "ls", "--json").stdout)]


def test_a_script_with_experiment_main_gets_its_artifacts_and_goes_on(tmp_path: Path):
    done = marin(tmp_path, "run", script(tmp_path, BUILD))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"lines: 3 at {tmp_path}/marin_store/tok/poems/2026.07.01\n"
    assert "2 built in" in done.stderr
    again = marin(tmp_path, "run", tmp_path / "pipeline.py")
    assert "all 2 steps are cached or not needed: nothing to build" in again.stderr
    assert "started" not in again.stderr


def test_the_targets_are_the_handles_at_the_top_that_no_other_depends_on(tmp_path: Path):
    text = "raw = poems()\ntok = poems('tok/poems', raw)\nmore = [poems('one'), tok]\nnamed = {'b': poems('two')}\n"
    done = marin(tmp_path, "plan", script(tmp_path, text), "--json")
    assert json.loads(done.stdout)["targets"] == ["tok/poems@dev", "one@dev", "two@dev"]


def test_a_script_without_targets_is_told_how_to_have_some(tmp_path: Path):
    for command in ("run", "plan"):
        done = marin(tmp_path, command, script(tmp_path, ""))
        assert done.returncode == 1
        assert "pipeline.py has nothing to make: end it with experiment_main(build)" in done.stderr


def test_a_script_that_runs_by_itself_does_so_with_the_options(tmp_path: Path):
    text = "from marin.execution.runner import run\n(made,) = run(poems())\nprint(made.path)\nspare = poems('spare')\n"
    path = script(tmp_path, text)
    planned = marin(tmp_path, "plan", path, "--prefix", "store", "--json")
    assert json.loads(planned.stdout)["targets"] == ["raw/poems@dev"]
    assert not (tmp_path / "store").exists()
    done = marin(tmp_path, "run", path, "--prefix", "store")
    assert done.stdout.startswith(f"{tmp_path}/store/raw/poems/dev")
    assert "spare" not in done.stderr


def test_the_script_sees_its_arguments_its_folder_and_itself(tmp_path: Path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "helper.py").write_text("LINES = 5\n")
    text = (
        "import sys, helper, __main__\nassert __main__.poems is poems\nprint(sys.argv, __name__, __file__)\n"
        "model = poems(lines=helper.LINES)\n"
    )
    path = script(folder, text)
    done = marin(tmp_path, "run", path, "--version", "2026.07.01", "--", "--lr", "3", "--")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[str(path), '--lr', '3', '--']} __main__ {path}\n"


def test_a_fingerprint_is_the_same_whether_marin_or_python_runs_the_script(tmp_path: Path):
    text = "print(poems().fingerprint().digest)\nif __name__ == '__main__':\n    model = poems()\n"
    path = script(tmp_path, text)

    alone = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True).stdout
    assert marin(tmp_path, "plan", path).stdout.startswith(alone)


def test_functions_of_the_script_run_in_a_process_of_their_own(tmp_path: Path):
    text = "first = poems()\nmodel = poems('tok/poems', first, run=remote(write))\n"
    done = marin(tmp_path, "run", script(tmp_path, text))
    assert done.returncode == 0, done.stderr
    assert built(tmp_path) == ["raw/poems@dev", "tok/poems@dev"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["raw/poems@2026.07.01", "tok/poems@2026.07.01"]),
        (["--version", "dev"], ["raw/poems@dev", "tok/poems@dev"]),
        (["--override", "tok/poems=anna-dev"], ["raw/poems@2026.07.01", "tok/poems@anna-dev"]),
        (["--version", "2026.08.01", "--override", "tok/poems=dev"], ["raw/poems@2026.08.01", "tok/poems@dev"]),
    ],
)
def test_versions_come_from_the_command_line_else_from_the_script(
    tmp_path: Path, words: list[str], expected: list[str]
):
    planned = marin(tmp_path, "plan", script(tmp_path, BUILD), "--json", *words)
    assert [step["step"] for step in json.loads(planned.stdout)["steps"]] == expected


def test_versions_reach_handles_at_the_top_of_the_script(tmp_path: Path):
    path = script(tmp_path, "model = poems('tok/poems', poems())\n")
    planned = marin(tmp_path, "plan", path, "--json", "--version", "2026.08.01", "--override", "tok/poems=dev")
    assert [step["step"] for step in json.loads(planned.stdout)["steps"]] == ["raw/poems@2026.08.01", "tok/poems@dev"]


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("text", [BUILD, "model = poems('tok/poems', poems())\n"])
def test_an_override_that_nothing_uses_is_refused_before_anything_runs(tmp_path: Path, command: str, text: str):
    done = marin(tmp_path, command, script(tmp_path, text), "--override", "tok/poem=dev")
    assert done.returncode == 1
    assert "error: override tok/poem=dev matches no handle: did you mean tok/poems?" in done.stderr
    assert not (tmp_path / "marin_store").exists()


def test_only_builds_what_it_names(tmp_path: Path):
    path = script(tmp_path, BUILD)
    refused = marin(tmp_path, "run", path, "--only", "tok/poems")
    assert refused.returncode == 1
    assert "raw/poems@2026.07.01 is not built, and --only leaves it out" in refused.stderr
    early = marin(tmp_path, "run", path, "--only", "raw/poems")
    assert (early.returncode, built(tmp_path)) == (0, ["raw/poems@2026.07.01"])
    assert "1 built" in early.stderr
    assert early.stderr.splitlines()[-1].startswith("note: tok/poems@2026.07.01 is not built, and --only leaves it out")
    assert marin(tmp_path, "run", path, "--only", "raw/poems", "--only", "tok/poems").returncode == 0


def test_failed_steps_end_with_1_and_a_table(tmp_path: Path):
    text = "bad = poems('bad', run=fail)\nafter = poems('after', bad)\ngood = poems('good')\n"
    done = marin(tmp_path, "run", script(tmp_path, text), "--max-concurrent", "1")
    assert done.returncode == 1
    assert built(tmp_path) == ["bad@dev", "good@dev"]
    assert re.search(
        r"1 step failed:\n  bad@dev\n    ValueError: no verse today\n    at (\S*/)?pipeline\.py:\d+ in fail\n",
        done.stderr,
    )
    assert "  after@dev (needs bad@dev)\n" in done.stderr
    assert done.stderr.endswith("error: 1 of 3 steps failed\n")
    assert done.stderr.count("no verse today") == 2  # when it happened, and in the table, as another step ended since
    assert "Traceback" not in done.stderr


def test_a_refused_run_says_only_why(tmp_path: Path):
    done = marin(tmp_path, "run", script(tmp_path, BUILD), "--only", "tok/poems")
    assert done.returncode == 1
    assert " in 0.0 s" not in done.stderr


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            "remote(write, resources=ResourceConfig(cpus=10_000))",
            "raw/big@dev: asks for cpus=10000, and this machine has",
        ),
        ("remote(locked)", "'lock' can't be sent there"),
    ],
)
def test_a_plan_tells_what_a_run_would_refuse(tmp_path: Path, run: str, said: str):
    before = "import threading\nfrom marin.executors.resources import ResourceConfig\nlock = threading.Lock()\n"
    before += "def locked(config):\n    with lock:\n        return write(config)\n"
    path = script(tmp_path, f"{before}big = poems('raw/big', run={run})\n")
    told = marin(tmp_path, "plan", path)
    assert told.returncode == 1
    assert said in told.stdout
    refused = json.loads(marin(tmp_path, "plan", path, "--json").stdout)["refused"]
    assert said in refused[0]
    ran = marin(tmp_path, "run", path)
    assert ran.returncode == 1
    assert said in ran.stderr


SAVING = """
def saving(config):
    Path({ready!r}).touch()
    try:
        time.sleep(1000)
    finally:
        while not Path({saved!r}).exists():
            time.sleep(0.02)
model = poems(run=remote(saving, resumable=True), version="2026.07.01")
"""


def test_a_signal_is_answered_while_steps_still_save_their_work(tmp_path: Path):
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    terminal = Terminal(tmp_path, "run", script(tmp_path, SAVING.format(ready=str(ready), saved=str(saved))))
    until(ready.exists, "the step runs")
    terminal.interrupt()
    terminal.read_until("stopping: steps save their work (again to kill them)")
    assert b"interrupted" not in terminal.written
    saved.touch()
    code, text = terminal.end()
    assert code == 130
    assert "run again to go on from where they were" in text


def test_a_second_signal_is_answered_and_kills(tmp_path: Path):
    ready = tmp_path / "ready"
    process = start(tmp_path, "run", script(tmp_path, SAVING.format(ready=str(ready), saved="never")), "--json")
    until(ready.exists, "the step runs")
    assert process.stdout is not None
    process.send_signal(signal.SIGINT)
    lines = iter(process.stdout.readline, "")
    assert any(json.loads(line) == {"event": "stopping", "signal": "SIGINT"} for line in lines)
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=PATIENCE)
    assert [json.loads(line)["event"] for line in rest.splitlines()] == ["stopping", "ended"]
    assert process.returncode == 130


def test_a_plan_writes_nothing(tmp_path: Path):
    path = script(tmp_path, BUILD)
    done = marin(tmp_path, "plan", path)
    assert done.returncode == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipeline.py"]
    assert re.search(r"^  build +raw/poems/2026\.07\.01 +not built yet$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("2 steps: 2 to build\n")


def test_a_changed_recipe_is_served_with_one_warning_and_a_new_version_is_built(tmp_path: Path):
    path = script(tmp_path, "model = poems(version='2026.07.01', lines=3)\n")
    marin(tmp_path, "run", path)
    path.write_text(path.read_text().replace("lines=3)", "lines=4)"))
    drifted = marin(tmp_path, "run", path)
    assert drifted.returncode == 0
    assert drifted.stderr.count("warning:") == 1
    assert re.search(r"    config.*lines.*: 3 → 4\n  bump the version to build the new recipe\n", drifted.stderr)
    path.write_text(path.read_text().replace("2026.07.01", "2026.07.02"))
    assert "1 built" in marin(tmp_path, "run", path).stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("how", ["endless", "remote(endless)"])
def test_a_stopped_run_says_so_and_ends_with_the_code_for_it(tmp_path: Path, number: int, code: int, how: str):
    ready = tmp_path / "ready"
    endless = f"def endless(config):\n    Path({str(ready)!r}).touch()\n    time.sleep(1000)\n"
    process = start(tmp_path, "run", script(tmp_path, f"{endless}model = poems(run={how})\n"))
    record = tmp_path / "marin_store/raw/poems/dev/.artifact.json"
    until(ready.exists, "the step runs")
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "Traceback" not in said
    assert "interrupted: 1 not built" in said
    assert '"failed"' in record.read_text()


def test_a_script_that_is_stopped_before_it_runs_anything_ends_with_130(tmp_path: Path):
    ready = tmp_path / "ready"
    process = start(tmp_path, "run", script(tmp_path, f"Path({str(ready)!r}).touch()\ntime.sleep(1000)\n"))
    until(ready.exists, "the script runs")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, "interrupted\n")


def test_a_run_that_nobody_listens_to_goes_on(tmp_path: Path):
    path = script(tmp_path, "model = poems('tok/poems', poems())\n")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*MARIN, "run", path, "--json"], cwd=tmp_path, env=environment(), stdout=write, stderr=write)
    os.close(write)
    assert done.returncode == 0
    assert built(tmp_path) == ["raw/poems@dev", "tok/poems@dev"]


def test_all_reasons_to_refuse_a_run_are_told_at_once(tmp_path: Path):
    text = "one = poems('one', pin='/missing/1')\ntwo = poems('two', pin='/missing/2')\n"
    done = marin(tmp_path, "run", script(tmp_path, text))
    assert done.returncode == 1
    told = done.stderr.rpartition("error: 2 steps can't be run as they are:")[2].splitlines()
    assert [line.split(":")[0] for line in told if "/missing/" in line] == ["  one@dev", "  two@dev"]
    assert "Traceback" not in done.stderr


# On a terminal


@pytest.mark.parametrize("columns", [40, 200])
def test_a_terminal_shows_a_line_for_what_runs_and_then_where_it_lies(tmp_path: Path, columns: int):
    go = tmp_path / "go"
    patient = "def patient(config):\n    report(15, 30, 'lines', note='loss 0.07')\n"
    patient += f"    while not Path({str(go)!r}).exists():\n        time.sleep(0.02)\n    return write(config)\n"
    terminal = Terminal(tmp_path, "run", script(tmp_path, f"{patient}model = poems(run=patient)\n"), columns=columns)
    terminal.read_until("%")
    go.touch()
    code, text = terminal.end()
    assert code == 0
    frames = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", text)]
    running = [line for line in frames if line.startswith("raw/poems@dev") and "%" in line]
    assert running
    assert all(len(line) <= columns for line in running)
    assert ("━" in "".join(running)) == (columns == 200)
    assert "✓ raw/poems@dev built in" in text
    assert f"{tmp_path}/marin_store/raw/poems/dev" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") > 0  # the cursor comes back


def test_no_color_means_none(tmp_path: Path):
    path = script(tmp_path, "model = [poems(), poems('bad', run=fail)]\n")
    _, colored = Terminal(tmp_path, "run", path).end()
    _, plain = Terminal(tmp_path, "run", path, NO_COLOR="1").end()
    assert re.search(r"\x1b\[[\d;]*m", colored)
    assert not re.search(r"\x1b\[[\d;]*m", plain)
    assert "\x1b[32m" in Terminal(tmp_path, "plan", path).end()[1]
    assert "\x1b[" not in Terminal(tmp_path, "plan", path, NO_COLOR="1").end()[1]


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path):
    code, text = Terminal(tmp_path, "run", script(tmp_path, "model = poems()\n"), TERM="dumb").end()
    assert code == 0
    assert "\x1b" not in text


def test_what_the_script_prints_goes_to_its_stdout_also_while_the_terminal_is_drawn_on(tmp_path: Path):
    chatty = "def chatty(config):\n    print('to stdout')\n    return write(config)\n"
    text = f"{chatty}model = poems(run=chatty, lines=20, pause=0.05)\n"
    output = tmp_path / "output.txt"
    code, screen = Terminal(tmp_path, "run", script(tmp_path, text), stdout=output).end()
    assert code == 0
    assert output.read_text() == "to stdout\n"
    assert "to stdout" not in screen


def test_a_terminal_is_given_back_when_the_run_is_stopped(tmp_path: Path):
    terminal = Terminal(tmp_path, "run", script(tmp_path, "model = poems(lines=1000, pause=0.1)\n"))
    terminal.read_until("%")
    terminal.interrupt()
    code, text = terminal.end()
    assert code == 130
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "interrupted: 1 not built" in text


def test_many_quick_steps_do_not_flood_a_terminal(tmp_path: Path):
    text = "model = [poems(f'p{n}', lines=1) for n in range(400)]\n"
    code, screen = Terminal(tmp_path, "run", script(tmp_path, text)).end()
    assert code == 0
    assert "400 built in" in screen
    assert screen.count("✓") < 20


def test_a_script_is_compiled_as_python_does_it(tmp_path: Path):
    done = marin(tmp_path, "run", script(tmp_path, "def f(x: int): ...\nprint(f.__annotations__)\na = poems()\n"))
    assert done.stdout == "{'x': <class 'int'>}\n"


THREADS = """
import threading
from marin.execution.runner import run

def go():
    for artifact in run(poems()):
        print(artifact.path)

thread = threading.Thread(target=go)
thread.start()
thread.join()
"""


def test_a_run_in_a_thread_of_the_script_obeys_the_command_line(tmp_path: Path):
    path = script(tmp_path, THREADS)
    arguments = ("--prefix", "elsewhere", "--version", "2026.07.01")
    planned = marin(tmp_path, "plan", path, *arguments)
    assert "build  raw/poems/2026.07.01" in planned.stdout
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "marin_store").exists()
    done = marin(tmp_path, "run", path, *arguments)
    assert done.stdout == f"{tmp_path}/elsewhere/raw/poems/2026.07.01\n"
    assert done.stderr.count("store:") == 1


@pytest.mark.parametrize("where", ["make", "remote(make)"])
def test_a_run_inside_a_step_uses_the_store_of_the_run(tmp_path: Path, where: str):
    text = f"""
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.runner import resolve

def make(config):
    resolve(poems("inner", version="2026.07.01"))
    return Artifact()

outer = ArtifactStep(name="outer", version="2026.07.01", run={where})
"""
    done = marin(tmp_path, "run", script(tmp_path, text), "--prefix", "elsewhere")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "elsewhere/inner/2026.07.01/.artifact.json").exists()
    assert not (tmp_path / "marin_store").exists()


HARD_EXIT = """
import os
from marin.execution.remote_function import remote
def vanish(config):
    print("nearly done", flush=True)
    os._exit(3)
handle = poems(run=remote(vanish, retries=1), version="2026.07.01")
"""


def test_whatever_shows_one_line_of_an_error_shows_one_that_is_complete_and_says_the_id_once(tmp_path: Path):
    ran = marin(tmp_path, "run", script(tmp_path, HARD_EXIT))
    reason = (
        "WorkerDiedError: its process ended with exit code 3 in the middle of the step: something in it called os._exit"
    )
    assert f"raw/poems@2026.07.01: failed: {reason}\n" in ran.stderr
    listed, planned = marin(tmp_path, "ls").stdout, marin(tmp_path, "plan", "pipeline.py").stdout
    assert listed.endswith(f"  {reason}\n")
    assert f" failed: {reason}\n" in planned
    assert "nearly done" not in listed + planned
    shown = marin(tmp_path, "show", "raw/poems").stdout
    assert re.search(rf"\n  failed tries\n    \S+: {reason}\n", shown)
    assert re.search(r"\n *Its log \S+ ends with:\n *nearly done\n", shown)
    assert "raw/poems@2026.07.01: its process" not in ran.stderr + shown


def test_the_traceback_in_a_log_begins_at_the_code_of_the_user(tmp_path: Path):
    path = script(tmp_path, "from marin.execution.remote_function import remote\nhandle = poems(run=remote(fail))")
    marin(tmp_path, "run", path)
    lines = marin(tmp_path, "log", "raw/poems").stdout.splitlines()
    start = lines.index("Traceback (most recent call last):")
    assert "pipeline.py" in lines[start + 1]
    assert lines[start + 1].endswith(", in fail")
    assert "ValueError: no verse today" in lines
