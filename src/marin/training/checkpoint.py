"""The artifact of a training run: trained parameters, and what is known of them."""

from __future__ import annotations

import hashlib
import importlib
import os
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from marin.errors import CheckpointError
from marin.execution.artifact import Artifact
from marin.processing.mixture.budget import ComponentBudget
from marin.processing.tokenize.tokenize import TokenizerIdentity
from marin.storage.faults import translated_faults
from marin.training.models.model import ModelConfig, restored_model

Precision: TypeAlias = Literal["float32", "bfloat16"]

Packing: TypeAlias = Literal["concatenated", "segmented"]

ExportDtype: TypeAlias = Literal["float32", "bfloat16", "float16"]

PARAMS_FILE = "params.safetensors"
SUMMARY_FILE = "checkpoint.json"
METRICS_FILE = "metrics.jsonl"
HF_FOLDER = "hf"
TOKENIZER_FOLDER = "tokenizer"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How well a model predicts a text. ``loss`` is in nats per token; ``tokens`` is how many were predicted.

    ``bits_per_byte`` is comparable between tokenizers and with compressors: bits per UTF-8 byte of the text, the
    end-of-text token of each document paid for and not counted as a byte. ``None`` where only some tokens of the text
    are learned, such as the answers of chats.
    """

    loss: float
    bits_per_byte: float | None
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Artifact):
    """A trained model. Parameters and metrics lie at ``path``.

    One that was imported has seen no tokens here: ``steps`` and ``tokens_seen`` are 0, and there are no metrics.
    ``validation`` and ``initial_validation`` are of all validation splits together, after and before the training;
    ``None`` without validation data.
    """

    fingerprint_name: ClassVar[str] = "marin.Checkpoint"

    model: dict[str, Any]
    """The fields of ``config``."""
    model_class: str = "marin.training.models.llama_config:LlamaConfig"
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
    train_loss: float | None
    """Of the last batch that held something to learn, in nats per token."""
    initial_validation: Evaluation | None
    validation: Evaluation | None
    params_sha256: str = ""
    """Of ``params.safetensors``; empty: made before it was told."""
    packing: Packing = "concatenated"
    """Whether tokens attended to all before them in their window, or to those of their own document only."""
    mixture_formula: int = 1
    """The rule by which seed and step chose the batches."""
    budget: tuple[ComponentBudget, ...] = ()
    """What each data set gave."""
    source: str | None = None
    """Where the parameters come from, of a model that was imported."""

    @property
    def config(self) -> ModelConfig:
        """The model, as it was described. Raises ``ConfigurationError`` if its class can't be imported any more."""
        return restored_model(self.model_class, self.model)

    @property
    def checkpoint_dir(self) -> str:
        """The folder of the parameters."""
        return self.path

    @property
    def hf_dir(self) -> str | None:
        """The folder of the model as Hugging Face's files; ``None`` if it has none: ``marin export`` makes them."""
        folder = os.path.join(self.path, HF_FOLDER)
        return folder if os.path.isdir(folder) else None

    def load_params(self) -> dict[str, Any]:
        """The parameters: JAX arrays by name, nested, layers as a list. ``CheckpointError`` if they are damaged."""
        return importlib.import_module("marin.training.evaluate").load_params(self)

    def checked_params_file(self) -> str:
        """The file of the parameters, which is as it was written. Raises ``CheckpointError``."""
        path = os.path.join(self.path, PARAMS_FILE)
        if not self.params_sha256:  # made before that was told
            return path
        with translated_faults(path, writing=False), open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.params_sha256:
            raise CheckpointError(
                f"{path} is not what was written: its disk, or somebody, has changed it. Bring a copy back, or train "
                "it again"
            )
        return path

    def history(self) -> list[dict[str, Any]]:
        """Every line of ``metrics.jsonl``: one per step, and one per validation (those have ``validation_loss``).

        Raises ``CheckpointError`` for a line that was damaged.
        """
        file = os.path.join(self.path, METRICS_FILE)
        if not self.steps and not os.path.exists(file):
            return []
        with open(file, "rb") as lines:
            return [_decoded(line, f"{file}, line {number}") for number, line in enumerate(lines, start=1)]

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
        for name in (PARAMS_FILE, SUMMARY_FILE, *((METRICS_FILE,) if self.steps else ())):
            file = os.path.join(self.path, name)
            if not os.path.isfile(file) or not os.path.getsize(file):
                raise CheckpointError(f"{file} is missing or empty: the checkpoint is not whole; train it again")


def _decoded(line: bytes, where: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise CheckpointError(
            f"{where} can't be read ({fault}): it was damaged after it was written; copy the file anew, or train again"
        ) from fault
