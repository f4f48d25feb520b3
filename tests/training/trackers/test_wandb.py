"""The real wandb, without its server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
KEY = "0123456789abcdef0123456789abcdef01234567"

PROGRAM = """
import logging, sys
from marin.training.trackers.configs import WandbConfig
from marin.training.trackers.running import Trackers, check_trackers
from tests.training.trackers.test_running import tracked_run

logging.basicConfig()
folder, resumed_step, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
trackers = [WandbConfig(project="poems", tags=("test",))]
check_trackers(trackers)
running = Trackers(trackers, tracked_run(folder, resumed_step=resumed_step, config={"lr": 0.25}))
for step in range(resumed_step + 1, resumed_step + 4):
    running.log({"step": step, "loss": 1 / step, "validation/poems/loss": 2.0})
running.close(seconds)
print("trained")
"""


def track(folder: Path, *, resumed_step: int = 0, seconds: float = 60.0, **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(resumed_step), str(seconds)],
        cwd=ROOT,
        env={**os.environ, "WANDB_API_KEY": KEY, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.heavy
def test_offline_a_resumed_training_goes_on_in_the_same_run_and_no_key_is_written(tmp_path):
    output, elsewhere = tmp_path / "output", tmp_path / "elsewhere"
    for folder in (output, elsewhere):
        folder.mkdir()
    for resumed_step in (0, 3):
        done = track(output, resumed_step=resumed_step, WANDB_MODE="offline", WANDB_DIR=str(elsewhere))
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        assert "tracker" not in done.stderr
    run_id = json.loads((output / "wandb.json").read_text())
    assert run_id == {"id": run_id["id"], "project": "poems", "entity": None}
    runs = sorted((elsewhere / "wandb").glob("offline-run-*"))
    assert [run.name.rpartition("-")[2] for run in runs] == [run_id["id"]] * 2
    contents = [(run / f"run-{run_id['id']}.wandb").read_bytes() for run in runs]
    assert all(b"validation/poems/loss" in content for content in contents)
    assert os.listdir(output) == ["wandb.json"]  # wandb's links would make the artifact one that can't be moved
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.heavy
def test_a_server_that_never_answers_keeps_neither_the_training_nor_its_process(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = track(
            tmp_path, seconds=5.0, WANDB_MODE="online", WANDB_BASE_URL=address, WANDB_DIR=str(tmp_path / "elsewhere")
        )
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "did not end in time and is left behind" in done.stderr
    assert KEY not in done.stderr
