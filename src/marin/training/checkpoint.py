"""The artifact of a training run: trained parameters, and what is known of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from marin.errors import CheckpointError
from marin.execution.artifact import Artifact
from marin.processing.tokenize.tokenize import TokenizerIdentity
from marin.training.models.llama_config import LlamaConfig

Precision: TypeAlias = Literal["float32", "bfloat16"]

PARAMS_FILE = "params.safetensors"
SUMMARY_FILE = "checkpoint.json"
METRICS_FILE = "metrics.jsonl"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How well a model predicts a text. ``loss`` is in nats per token; ``tokens`` is how many were predicted.

    ``bits_per_byte`` is comparable between tokenizers and with compressors: bits per UTF-8 byte of the text, the
    end-of-text token of each document paid for and not counted as a byte.
    """

    loss: float
    bits_per_byte: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Artifact):
    """A trained model. Parameters and metrics lie at ``path``; ``marin.training.evaluate`` loads it.

    ``validation`` and ``initial_validation`` are of all validation splits together, after and before the training;
    ``None`` without validation data.
    """

    fingerprint_name: ClassVar[str] = "marin.Checkpoint"

    model: LlamaConfig
    vocab_size: int
    num_params: int
    tokenizer: TokenizerIdentity
    seq_len: int
    batch_size: int
    precision: Precision
    steps: int
    tokens_seen: int
    epochs: float
    """Passes over the training data, all data sets taken together."""
    train_loss: float
    """Of the last step's batch, in nats per token."""
    initial_validation: Evaluation | None
    validation: Evaluation | None

    @property
    def checkpoint_dir(self) -> str:
        """The folder of the parameters."""
        return self.path

    def history(self) -> list[dict[str, Any]]:
        """Every line of ``metrics.jsonl``: one per step, and one per validation (those have ``validation_loss``)."""
        file = os.path.join(self.path, METRICS_FILE)
        with open(file, "rb") as lines:
            return [msgspec.json.decode(line) for line in lines]

    def metrics(self) -> dict[str, float]:
        """The last value of each metric.

        ``step``, ``loss``, ``learning_rate``, ``gradient_norm``, ``tokens``, ``tokens_per_second``, and, with
        validation data, ``validation_loss`` and ``bits_per_byte``.
        """
        latest: dict[str, float] = {}
        for line in self.history():
            latest.update(line)
        return latest

    def verify(self) -> None:
        """Raise ``CheckpointError`` unless the parameters and the metrics lie at ``path``."""
        for name in (PARAMS_FILE, METRICS_FILE, SUMMARY_FILE):
            file = os.path.join(self.path, name)
            if not os.path.isfile(file) or not os.path.getsize(file):
                raise CheckpointError(f"{file} is missing or empty: the checkpoint is not whole; train it again")
