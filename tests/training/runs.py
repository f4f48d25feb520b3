"""Small trainings for the tests; run as a program, one in a process of its own."""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marin.errors import RunInterrupted
from marin.execution.progress import Progress, progress_sink
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import AdamConfig
from marin.training.train import DatasetConfig, TrainLmConfig
from marin.training.trainer import train
from tests.executors.processes import eventually

ROOT = Path(__file__).parents[2]
MODEL = LlamaConfig(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, max_seq_len=64)


def train_config(output: Path, *caches: TokenizedCache, **changes: Any) -> TrainLmConfig:
    output.mkdir(parents=True, exist_ok=True)
    config = TrainLmConfig(
        output_path=str(output),
        model=MODEL,
        datasets=tuple(DatasetConfig(cache=cache, weight=1.0) for cache in caches),
        validation=None,
        optimizer=AdamConfig(lr=1e-2),
        batch_size=4,
        seq_len=16,
        num_train_steps=30,
        num_train_epochs=None,
        eval_every=10,
        evals_per_run=None,
        seed=0,
        z_loss=0.0,
        precision="float32",
        device="cpu",
    )
    return dataclasses.replace(config, **changes)


def start(
    folder: Path,
    *configs: TrainLmConfig,
    wait_after: int = -1,
    devices: int = 1,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """The trainings, one after the other, in a process of its own that has so many CPU devices.

    The last one waits after so many steps. ``variables`` are added to its environment; ``HOLD_AFTER`` is a step after
    which it waits until the file ``HOLD_UNTIL`` is there.
    """
    file = Path(tempfile.mkdtemp(dir=folder)) / "configs"
    file.write_bytes(pickle.dumps(configs))
    forced = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, "-m", "tests.training.runs", str(file), str(wait_after)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **forced, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=None if variables is None else subprocess.STDOUT,
        text=True,
    )


def read_until(process: subprocess.Popen[str], wanted: str) -> None:
    """Until a line begins with ``wanted``."""
    seen = list[str]()
    assert process.stdout is not None
    for line in process.stdout:
        seen.append(line)
        if line.startswith(wanted):
            return
    raise AssertionError(f"ended with {process.wait()} before {wanted!r}: {''.join(seen)}")


def wait_for_checkpoint(output: str | Path) -> None:
    """Until one is whole: a training of so few and so short steps may be ahead of the disk."""
    eventually(lambda: list(Path(output).glob("resume/step-*[0-9]/complete.json")))


def wait_for_signal() -> None:
    """Until the training has noted a SIGTERM, which gives the signal its old handler back."""
    eventually(lambda: signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)


def main(config_file: str, wait_after: int) -> None:
    """Train; after ``wait_after`` steps of the last one do nothing for long, so that a signal finds it just there."""
    *before, last = pickle.loads(Path(config_file).read_bytes())

    def watch(progress: Progress) -> None:
        print(f"{progress.done:.0f} {progress.note}", flush=True)
        if progress.done == float(os.environ.get("HOLD_AFTER", "-1")) and progress.note.startswith("loss"):
            eventually(Path(os.environ["HOLD_UNTIL"]).exists)
        if progress.done == wait_after and progress.note.startswith("loss"):
            wait_for_signal()

    for config in before:
        train(config)
    try:
        with progress_sink(watch):
            train(last)
    except RunInterrupted as stopped:
        print(stopped, flush=True)
        raise


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    main(sys.argv[1], int(sys.argv[2]))
