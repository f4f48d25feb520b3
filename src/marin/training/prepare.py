"""Everything that can be wrong with a training, found before step 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from marin.errors import ConfigurationError, DataError, TokenizerMismatchError
from marin.processing.tokenize.cache import TokenCache
from marin.processing.tokenize.manifest import TRAIN, VALIDATION
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training import defaults
from marin.training.data import Component, TrainingData
from marin.training.train import TrainLmConfig

CHECKED_TOKENS = 100_000_000
"""So many tokens of each split are looked at before step 0 for ids that the vocabulary lacks; JAX would clamp them."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data of a training and what follows from it, checked."""

    data: TrainingData
    validation: tuple[TokenCache, ...]
    vocab_size: int
    num_steps: int
    eval_every: int


def prepare(config: TrainLmConfig) -> Prepared:
    """Open the data and check all that can be checked before step 0."""
    caches = [dataset.cache for dataset in config.datasets]
    first = caches[0]
    for cache in (*caches, *(config.validation or ())):
        cache.verify()
        if not cache.tokenizer.agrees_with(first.tokenizer):
            raise TokenizerMismatchError(
                f"{cache.path} was made by tokenizer {cache.tokenizer.location}, but {first.path} by "
                f"{first.tokenizer.location}: one model needs one tokenizer"
            )
    readers = [TokenCache.open(cache.path, TRAIN) for cache in caches]
    components = [
        Component(name=reader.path, reader=reader, weight=dataset.weight)
        for reader, dataset in zip(readers, config.datasets, strict=True)
    ]
    data = TrainingData(components, seq_len=config.seq_len, batch_size=config.batch_size, seed=config.seed)
    validation = _validation_readers(config, caches)
    _check_overlap(
        [reader for reader, dataset in zip(readers, config.datasets, strict=True) if dataset.weight], validation
    )
    for reader in (*readers, *validation):
        _check_ids(reader, first.vocab_size)
    num_steps = _num_steps(config, data)
    for name, sequences, epochs in data.shares(num_steps):
        print(f"train on {name}: {sequences:,} sequences of {config.seq_len} tokens, {epochs:.2f} epochs", flush=True)
    return Prepared(
        data=data,
        validation=validation,
        vocab_size=first.vocab_size,
        num_steps=num_steps,
        eval_every=config.eval_every or -(-num_steps // (config.evals_per_run or 1)),
    )


def _validation_readers(config: TrainLmConfig, caches: Sequence[TokenizedCache]) -> tuple[TokenCache, ...]:
    if config.validation is None:
        chosen = {cache.path: VALIDATION for cache in caches if cache.has_validation}
        if not chosen and config.eval_every is not None:
            raise DataError(
                f"eval_every={config.eval_every}, but none of the data sets has a validation split: hold some out with "
                "tokenized(..., held_out=0.01), or give validation=[...]"
            )
    else:
        chosen = {cache.path: VALIDATION if cache.has_validation else TRAIN for cache in config.validation}
        trained_on = {dataset.cache.path for dataset in config.datasets if dataset.weight > 0}
        for path, split in chosen.items():
            if split == TRAIN and path in trained_on:
                raise DataError(f"validation overlaps the training: {path} is trained on and has no validation split")
    readers = tuple(TokenCache.open(path, split) for path, split in chosen.items())
    for reader in readers:
        if reader.num_tokens < 2:
            raise DataError(
                f"the {reader.split} split of {reader.path} has {reader.num_tokens} tokens: there is nothing to "
                "predict; hold out more text"
            )
    return readers


def _check_overlap(trained_on: Sequence[TokenCache], validation: Sequence[TokenCache]) -> None:
    """Files with the same documents, wherever they lie. Single documents are not compared."""
    where = {digest: reader.path for reader in trained_on for digest in _content(reader)}
    for reader in validation:
        for digest, file in _content(reader).items():
            if digest in where:
                raise DataError(
                    f"validation overlaps the training: what {file} of {reader.path} holds is also in {where[digest]}: "
                    "validate on other text"
                )


def _content(reader: TokenCache) -> dict[tuple[str, str], str]:
    shards = [shard for shard in reader.manifest.shards(reader.split) if shard.documents]
    return {(shard.tokens_sha256, shard.lengths_sha256): shard.file for shard in shards}


def _check_ids(reader: TokenCache, vocab_size: int) -> None:
    piece = 1 << 22
    for start in range(0, min(reader.num_tokens, CHECKED_TOKENS), piece):
        largest = int(np.max(reader.tokens(start, min(piece, reader.num_tokens - start))))
        if largest >= vocab_size:
            raise DataError(
                f"the {reader.split} split of {reader.path} holds token id {largest}, but the vocabulary has "
                f"{vocab_size} tokens: tokenize it again"
            )


def _num_steps(config: TrainLmConfig, data: TrainingData) -> int:
    if config.num_train_steps is not None:
        return config.num_train_steps
    epochs = config.num_train_epochs or defaults.NUM_TRAIN_EPOCHS
    # As the author wrote it: 0.29 of 100 windows are 29, not the 28.99... of binary fractions.
    steps = math.floor(Fraction(str(epochs)) * data.num_windows / config.batch_size)
    if not steps:
        raise ConfigurationError(
            f"num_train_epochs={epochs} of {data.num_windows} windows is less than one batch of {config.batch_size}: "
            "train longer, or lower batch_size"
        )
    return steps
