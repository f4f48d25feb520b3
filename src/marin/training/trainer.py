"""Train a language model: the step function behind ``train_lm``.

Read in this order: ``prepare`` (what can be wrong, before step 0), ``loop`` (the steps), ``rolling`` (going on after an
interruption), then ``update``, ``data`` and ``evaluate``.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import jax
import msgspec

from marin.execution.artifact import at_path
from marin.execution.results import decode_result, encode_result, to_json
from marin.processing.durable import write_whole
from marin.training.arrays import save_arrays
from marin.training.checkpoint import METRICS_FILE, PARAMS_FILE, SUMMARY_FILE, Checkpoint
from marin.training.devices import find_device
from marin.training.interrupts import Interrupts
from marin.training.loop import TrainingLoop, last_validation
from marin.training.prepare import Prepared, prepare
from marin.training.rolling import RollingCheckpoints
from marin.training.train import TrainLmConfig

ROLLING_FOLDER = "resume"
"""Inside the output folder while the training lasts; not part of the finished artifact."""


def train(config: TrainLmConfig) -> Checkpoint:
    """Train as ``config`` says; go on from the newest complete rolling checkpoint in ``config.output_path``, if any.

    Raises before step 0 ``DeviceNotFoundError``, ``DataError``, ``TokenizerMismatchError``, ``ConfigurationError`` and
    ``CheckpointError``; later ``NonFiniteLossError``. SIGTERM and Ctrl-C save the state and raise ``RunInterrupted``.
    """
    output, summary = config.output_path, os.path.join(config.output_path, SUMMARY_FILE)
    if os.path.exists(summary):  # killed after the last step, before the artifact was published
        shutil.rmtree(os.path.join(output, ROLLING_FOLDER), ignore_errors=True)
        with open(summary, "rb") as file:
            return at_path(decode_result(Checkpoint, msgspec.json.decode(file.read()), what=summary), output)
    checkpoints = RollingCheckpoints(os.path.join(output, ROLLING_FOLDER), _recipe(config))
    with jax.default_device(find_device(config.device)), Interrupts() as interrupts:
        prepared = prepare(config)
        loop = TrainingLoop(
            config,
            prepared,
            checkpoints=checkpoints,
            metrics_path=os.path.join(output, METRICS_FILE),
            interrupts=interrupts,
        )
        params, lines = loop.run()
    save_arrays(os.path.join(output, PARAMS_FILE), params)
    checkpoint = _describe(config, prepared, lines)
    write_whole(summary, msgspec.json.encode(encode_result(checkpoint)))
    checkpoints.clear()
    return at_path(checkpoint, output)


def _recipe(config: TrainLmConfig) -> dict[str, Any]:
    """What must not change between the two halves of a training: everything but where it runs and lies."""
    recipe: dict[str, Any] = to_json(config)
    for name in ("output_path", "device", "checkpoint_seconds", "validation", "eval_every", "evals_per_run"):
        del recipe[name]
    recipe["datasets"] = [{"content": d.cache.content_sha256, "weight": d.weight} for d in config.datasets]
    return recipe


def _describe(config: TrainLmConfig, prepared: Prepared, lines: list[dict[str, Any]]) -> Checkpoint:
    steps, sequences = prepared.num_steps, prepared.num_steps * config.batch_size
    return Checkpoint(
        model=config.model,
        vocab_size=prepared.vocab_size,
        num_params=config.model.num_params(prepared.vocab_size),
        tokenizer=config.datasets[0].cache.tokenizer,
        seq_len=config.seq_len,
        batch_size=config.batch_size,
        precision=config.precision,
        steps=steps,
        tokens_seen=sequences * config.seq_len,
        epochs=sequences / prepared.data.num_windows,
        train_loss=next(line["loss"] for line in reversed(lines) if "loss" in line),
        initial_validation=last_validation(lines, at_step=0),
        validation=last_validation(lines, at_step=steps),
    )
