"""Small trainings for the tests; run as a program, one in a process of its own."""

from __future__ import annotations

import dataclasses
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from marin.execution.progress import Progress, progress_sink
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import AdamConfig
from marin.training.train import DatasetConfig, TrainLmConfig
from marin.training.trainer import train

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


def wait_for_signal() -> None:
    """Until the training has noted a SIGTERM, which gives the signal its old handler back; a minute at most."""
    deadline = time.monotonic() + 60
    while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL and time.monotonic() < deadline:
        time.sleep(0.01)


def main(config_file: str, wait_after: int) -> None:
    """Train; after ``wait_after`` steps do nothing for long, so that a signal finds the training just there."""

    def watch(progress: Progress) -> None:
        print(f"{progress.done:.0f} {progress.note}", flush=True)
        if progress.done == wait_after and progress.note.startswith("loss"):
            wait_for_signal()

    with progress_sink(watch):
        train(msgspec.json.decode(Path(config_file).read_bytes(), type=TrainLmConfig))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    main(sys.argv[1], int(sys.argv[2]))
