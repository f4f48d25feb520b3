"""Token caches made from numbers, written and read by the real code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marin.processing.tokenize.cache import ShardWriter, token_type
from marin.processing.tokenize.manifest import (
    CACHE_FORMAT,
    TRAIN,
    VALIDATION,
    Manifest,
    PartRecord,
    TokenizerIdentity,
    write_manifest,
)
from marin.processing.tokenize.tokenize import TokenizedCache


def tokenizer_identity(vocab_size: int, location: str = "toy") -> TokenizerIdentity:
    digest = hashlib.sha256(f"{location}/{vocab_size}".encode()).hexdigest()
    return TokenizerIdentity(
        kind="file",
        location=location,
        sha256=digest,
        vocab_size=vocab_size,
        bos_id=None,
        eos_id=0,
        eos_token="<eos>",
        probe_sha256=digest,
    )


def make_cache(
    path: Path,
    train: NDArray[np.integer],
    validation: NDArray[np.integer] | None = None,
    *,
    vocab_size: int,
    tokenizer: str = "toy",
    true_vocab_size: int | None = None,
    documents: Sequence[int] | None = None,
    learned: Callable[[NDArray[np.integer]], NDArray[np.bool_]] | None = None,
) -> TokenizedCache:
    """A cache of one document per split, or with training documents of so many tokens; each stands for two bytes.

    ``true_vocab_size`` lets the files hold ids that the stated vocabulary lacks. ``learned`` makes the loss mask.
    """
    path.mkdir(parents=True)
    identity = tokenizer_identity(vocab_size, tokenizer)
    shards = []
    for split, ids in ((TRAIN, train), (VALIDATION, validation)):
        if ids is None:
            continue
        file = f"{split}/part-0.arrow"
        written = true_vocab_size or vocab_size
        writer = ShardWriter(
            str(path), file, split=split, vocab_size=written, metadata={}, has_mask=learned is not None
        )
        lengths = np.array(documents if documents and split == TRAIN else [len(ids)])
        mask = None if learned is None else learned(ids)
        writer.write(np.asarray(ids, np.uint16), lengths, text_bytes=2 * len(ids), mask=mask)
        shards.append(writer.close())
    part = PartRecord(part=0, recipe="toy", inputs=(), shards=tuple(shards))
    manifest = Manifest(
        format=CACHE_FORMAT, dtype=token_type(vocab_size), tokenizer=identity, engine="toy", parts=(part,)
    )
    write_manifest(str(path), manifest)
    return TokenizedCache.from_source(str(path), {})


def cycle(vocab_size: int, count: int, *, seed: int = 0, noise: float = 0.1) -> NDArray[np.int64]:
    """Text that can be learned: each token follows from the one before, save for some noise."""
    random = np.random.default_rng(seed)
    successor = random.permutation(vocab_size)
    ids = np.empty(count, np.int64)
    ids[0] = 1
    surprises = random.random(count) < noise
    random_ids = random.integers(0, vocab_size, count)
    for position in range(1, count):
        ids[position] = random_ids[position] if surprises[position] else successor[ids[position - 1]]
    return ids
