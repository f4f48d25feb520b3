"""``marin stop``: a run in a process of its own, stopped from another one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from marin.storage.local import LocalStore
from tests.cli.commands import MARIN, environment, marin, script
from tests.execution.records import attempt, build, put
from tests.executors.processes import PATIENCE, eventually

SLOW = """
def slow(config):
    time.sleep(1000)

step = poems("raw/slow", run=RUN, version="2026.07.01")
"""


@pytest.fixture
def start(tmp_path: Path):
    """Start a run of a step that takes long: its process, once the step runs."""
    runs: list[subprocess.Popen[bytes]] = []

    def begin(run: str) -> subprocess.Popen[bytes]:
        path = script(tmp_path, SLOW.replace("RUN", run))
        with (tmp_path / "out").open("wb") as out:
            process = subprocess.Popen(
                [*MARIN, "run", path], cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        runs.append(process)
        eventually(lambda: "started" in (tmp_path / "out").read_text())
        return process

    yield begin
    for process in runs:
        process.kill()
        process.wait()


@pytest.mark.parametrize("run", ["slow", "remote(slow)"])
def test_a_step_is_stopped_from_another_terminal(tmp_path: Path, start, run: str):
    process = start(run)
    done = marin(tmp_path, "stop", "raw/slow", "--wait")
    assert (done.returncode, done.stdout) == (0, "raw/slow@2026.07.01: stopped\n")
    assert f"asked pid {process.pid} of " in done.stderr
    assert process.wait(PATIENCE) == 1
    assert "raw/slow@2026.07.01: failed: StepStoppedError: was stopped by " in (tmp_path / "out").read_text()
    assert "failed" in marin(tmp_path, "ls").stdout
    assert "stopped by " in marin(tmp_path, "show", "raw/slow").stdout


def test_json_says_what_came_of_it(tmp_path: Path, start):
    start("remote(slow)")
    done = marin(tmp_path, "stop", "raw/slow@2026.07.01", "--wait", "--json")
    assert json.loads(done.stdout) == {"id": "raw/slow@2026.07.01", "answer": "stopped", "state": "failed"}
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"build": build()}, "raw/slow@2026.07.01: nobody builds it: it is built"),
        ({"attempt": attempt(error="no rhyme")}, "raw/slow@2026.07.01: nobody builds it: it is failed"),
    ],
)
def test_what_nobody_builds_is_told(tmp_path: Path, given: Any, told: str):
    put(LocalStore(tmp_path / "marin_store"), "raw/slow@2026.07.01", **given)
    done = marin(tmp_path, "stop", "raw/slow")
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr


def test_a_dead_builder_is_told(tmp_path: Path, start):
    process = start("slow")
    process.kill()
    process.wait()
    done = marin(tmp_path, "stop", "raw/slow")
    assert done.returncode == 1
    assert f"nobody builds it: pid {process.pid} of " in done.stderr
    assert "is gone. The next run takes over" in done.stderr


def test_what_is_not_there_is_told(tmp_path: Path):
    put(LocalStore(tmp_path / "marin_store"), "raw/slow@2026.07.01", build=build())
    done = marin(tmp_path, "stop", "raw/slo")
    assert done.returncode == 1
    assert "Did you mean raw/slow" in done.stderr
