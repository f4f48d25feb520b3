"""The tables of options are those of the code: every option, in order, with its default and whether it is identity."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.execution.fingerprint import EXECUTION_ONLY
from marin.execution.lazy import ArtifactStep
from marin.execution.version_codex import AMBIENT_VERSION
from marin.experiment.data import tokenized, train_lm, trained_tokenizer
from marin.experiment.models import Gpt2Config, LlamaConfig, llama_nano
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training import defaults
from marin.training.checkpoint import Checkpoint
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.mesh_config import MeshConfig
from marin.training.optimizers import AdamConfig, LionConfig, SgdConfig
from marin.training.trackers.configs import TensorboardConfig
from marin.training.train_config import TrainLmConfig

DOCS = Path(__file__).parents[2] / "docs"
DATA = DOCS / "how-to/train-on-your-own-text.md"
TRAINING = DOCS / "reference/training-config.md"
PAGES: dict[Callable[..., Any], Path] = {
    tokenized: DATA,
    trained_tokenizer: DATA,
    train_lm: TRAINING,
    LlamaConfig: TRAINING,
    Gpt2Config: TRAINING,
    AdamConfig: TRAINING,
    LionConfig: TRAINING,
    SgdConfig: TRAINING,
    CheckpointPolicy: TRAINING,
    MeshConfig: TRAINING,
    TrainLmConfig: TRAINING,
}
WORDS = {"required": inspect.Parameter.empty, "open": AMBIENT_VERSION, "`CheckpointPolicy()`": CheckpointPolicy()}


def rows(described: Callable[..., Any]) -> dict[str, list[str]]:
    """The other cells of each option, as the section says them."""
    text = PAGES[described].read_text(encoding="utf-8")
    _, _, rest = re.split(rf"^(##+) `{described.__name__}`\n", text, maxsplit=1, flags=re.MULTILINE)
    section = re.split(r"^##", rest, flags=re.MULTILINE)[0]
    lines = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    return {option: re.split(r" (?<!\\)\| ", cells) for option, cells in lines}


@pytest.mark.parametrize("described", PAGES, ids=lambda described: described.__name__)
def test_every_option_is_there_with_its_default(described: Callable[..., Any]):
    parameters = inspect.signature(described).parameters
    shown = {
        option: WORDS[cells[0]] if cells[0] in WORDS else ast.literal_eval(cells[0].strip("`"))
        for option, cells in rows(described).items()
    }
    assert list(shown) == list(parameters), "in the order of the code"
    assert {option: parameters[option].default for option in shown} == shown
    assert all(all(cells) for cells in rows(described).values())


def test_what_train_lm_fills_in_is_said():
    said = {option: cells[-1] for option, cells in rows(train_lm).items()}
    assert f"lr={defaults.LEARNING_RATE:.0e}`".replace("e-03", "e-3") in said["optimizer"]
    assert f"`None`: {defaults.BATCH_SIZE}" in said["batch_size"]
    assert f"`None`: {defaults.SEQ_LEN}," in said["seq_len"]
    assert f"`None`: {defaults.EVALS_PER_RUN} validations" in said["eval_every"]
    assert f"without both: {defaults.NUM_TRAIN_EPOCHS}" in said["num_train_epochs"]


def poems(name: str = "tokenized/poems") -> ArtifactStep[TokenizedCache]:
    return ArtifactStep(name=name, version="2026.07.01", artifact_type=TokenizedCache, run="my_project.poems:tokenize")


POEMS, OTHERS = poems(), poems("tokenized/others")
PLAIN: dict[str, Any] = {
    "name": "checkpoints/poet",
    "model": llama_nano,
    "datasets": {POEMS: 1.0},
    "version": "2026.07.01",
}
OTHER: dict[str, Any] = {
    "name": "checkpoints/other",
    "model": dataclasses.replace(llama_nano, num_layers=3),
    "datasets": {OTHERS: 1.0},
    "optimizer": AdamConfig(lr=6e-4),
    "batch_size": 16,
    "seq_len": 512,
    "num_train_steps": 10,
    "num_train_epochs": 2,
    "version": "2026.07.02",
    "validation": [OTHERS],
    "eval_every": 5,
    "init_from": ArtifactStep(
        name="checkpoints/start", version="2026.07.01", artifact_type=Checkpoint, run="my_project.poems:train"
    ),
    "evals": ["my_project.evals:accuracy"],
    "seed": 1,
    "z_loss": 1e-4,
    "precision": "bfloat16",
    "packing": "segmented",
    "mesh": "fsdp=2",
    "grad_accumulation": 2,
    "remat": True,
    "hf_export": "bfloat16",
    "on_nonfinite": "skip",
    "max_skipped_steps": 3,
    "checkpoints": CheckpointPolicy(seconds=60),
    "trackers": [TensorboardConfig()],
    "resources": "tpu",
}
"""Of each option another value than its default."""


@pytest.mark.parametrize("option", inspect.signature(train_lm).parameters)
def test_an_option_is_identity_if_the_page_says_so(option: str):
    plain, other = train_lm(**PLAIN), train_lm(**{**PLAIN, option: OTHER[option]})
    told = rows(train_lm)[option][1]
    assert (other.fingerprint() != plain.fingerprint()) == (told == "yes")
    assert (other.id != plain.id) == (told == "address")
    assert told in ("yes", "no", "address")


def test_a_field_of_the_config_is_identity_if_the_page_says_so():
    of_the_run = {"output_path", "device"}  # placeholders in the recipe
    identity = {
        spec.name: "no" if spec.metadata.get(EXECUTION_ONLY) or spec.name in of_the_run else "yes"
        for spec in dataclasses.fields(TrainLmConfig)
    }
    assert {name: cells[1] for name, cells in rows(TrainLmConfig).items()} == identity


def test_readers_are_told_everywhere_that_edited_files_are_not_seen():
    sentences = [
        "dited input files are not seen",
        "what is recorded is the source as it is written, and a fixed version that is built is served as it is",
        "When you edit, add or remove files, bump the version",
    ]
    for page in ("README.md", "docs/tutorials/first-pipeline.md", "docs/how-to/train-on-your-own-text.md"):
        text = " ".join((DOCS.parent / page).read_text(encoding="utf-8").split())
        assert [sentence for sentence in sentences if sentence not in text] == []
