"""The tables of options in the how-to are those of the code: every option, in order, with its default."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.execution.version_codex import AMBIENT_VERSION
from marin.experiment.data import tokenized, train_lm, trained_tokenizer
from marin.experiment.models import LlamaConfig
from marin.training import defaults
from marin.training.optimizers import AdamConfig

PAGE = Path(__file__).parents[2] / "docs/how-to/train-on-your-own-text.md"
WORDS = {"required": inspect.Parameter.empty, "open": AMBIENT_VERSION}


def rows(heading: str) -> list[tuple[str, str, str]]:
    """Option, default and meaning, as the section says them."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"### `{heading}`\n")
    section = re.split(r"^##", rest, flags=re.MULTILINE)[0]
    return re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", section, re.MULTILINE)


@pytest.mark.parametrize("described", [tokenized, trained_tokenizer, train_lm, LlamaConfig, AdamConfig])
def test_every_option_is_there_with_its_default(described: Callable[..., Any]):
    parameters = inspect.signature(described).parameters
    shown = {
        option: WORDS[default] if default in WORDS else ast.literal_eval(default.strip("`"))
        for option, default, _ in rows(described.__name__)
    }
    assert shown.keys() == parameters.keys()
    assert {option: parameters[option].default for option in shown} == shown


def test_what_train_lm_fills_in_is_said():
    said = {option: meaning for option, _, meaning in rows("train_lm")}
    assert f"lr={defaults.LEARNING_RATE:.0e}`".replace("e-03", "e-3") in said["optimizer"]
    assert f"`None`: {defaults.BATCH_SIZE}" in said["batch_size"]
    assert f"`None`: {defaults.SEQ_LEN}," in said["seq_len"]
    assert f"`None`: {defaults.EVALS_PER_RUN} validations" in said["eval_every"]
    assert f"without both: {defaults.NUM_TRAIN_EPOCHS}" in said["num_train_epochs"]


def test_readers_are_told_everywhere_that_edited_files_are_not_seen():
    sentences = [
        "dited input files are not seen",
        "what is recorded is the source as it is written, and a fixed version that is built is served as it is",
        "When you edit, add or remove files, bump the version",
    ]
    for page in ("README.md", "docs/tutorials/first-pipeline.md", "docs/how-to/train-on-your-own-text.md"):
        text = " ".join((PAGE.parents[2] / page).read_text(encoding="utf-8").split())
        assert [sentence for sentence in sentences if sentence not in text] == []
