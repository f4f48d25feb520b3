"""The trainer reads caches of other tools as it reads ours."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from marin.errors import DataError
from marin.processing.tokenize.encoder import ByteEncoder
from marin.processing.tokenize.export_cache import export_cache
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.prepare import prepare
from tests.processing.tokenize.foreign.files import write_nanogpt
from tests.training.caches import cycle
from tests.training.runs import train_config

BYTES = {"tokenizer": "bytes"}


@pytest.fixture
def nanogpt(tmp_path: Path) -> TokenizedCache:
    write_nanogpt(tmp_path / "theirs" / "train.bin", cycle(257, 4000).tolist())
    write_nanogpt(tmp_path / "theirs" / "val.bin", cycle(257, 600, seed=1).tolist())
    return TokenizedCache.from_source(str(tmp_path / "theirs"), BYTES)


def test_the_batches_are_those_of_the_same_tokens_in_any_layout(tmp_path: Path, nanogpt: TokenizedCache):
    export_cache(nanogpt, tmp_path / "exported", layout="megatron")
    megatron = TokenizedCache.from_source(str(tmp_path / "exported"), BYTES)
    one, other = (prepare(train_config(tmp_path / "out", cache)) for cache in (nanogpt, megatron))
    for step in range(3):
        assert np.array_equal(one.data.batch(step).tokens, other.data.batch(step).tokens)
    assert [reader.num_tokens for reader in one.validation.values()] == [600]


def test_training_text_that_is_also_validation_text_is_noticed(tmp_path: Path, nanogpt: TokenizedCache):
    copy = tmp_path / "copy" / "train.bin"
    copy.parent.mkdir()
    copy.write_bytes((tmp_path / "theirs" / "train.bin").read_bytes())
    validation = TokenizedCache.from_source(str(copy), BYTES)
    with pytest.raises(DataError, match="validation overlaps the training: what the train split of"):
        prepare(train_config(tmp_path / "out", nanogpt, validation=(validation,)))


def test_a_cache_whose_text_was_not_measured_can_not_be_validated_on(tmp_path: Path, nanogpt: TokenizedCache):
    fields = dataclasses.asdict(ByteEncoder().identity)
    unmeasured = TokenizedCache.from_source(nanogpt.path, {"tokenizer": fields})
    with pytest.raises(DataError, match=r"how much text the validation split of .* adopt it with its tokenizer itself"):
        prepare(train_config(tmp_path / "out", unmeasured))


def test_a_cache_that_was_changed_after_it_was_adopted_is_not_trained_on(tmp_path: Path, nanogpt: TokenizedCache):
    write_nanogpt(tmp_path / "theirs" / "train.bin", cycle(257, 4000, seed=2).tolist())
    with pytest.raises(DataError, match="holds other tokens than when it was adopted"):
        prepare(train_config(tmp_path / "out", nanogpt))
