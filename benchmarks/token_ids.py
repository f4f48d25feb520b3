"""The ids that every tool trains on: frequencies as in text, in an order drawn once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

IDS = 2_000_000


def write(folder: Path, vocab_size: int) -> Path:
    """``folder/VOCAB_SIZE/train.bin``: uint16 ids one after the other. Made once; the same each time."""
    path = folder / str(vocab_size) / "train.bin"
    if path.exists() and path.stat().st_size == 2 * IDS:
        return path
    shares = 1 / (np.arange(vocab_size) + 3.0)
    limits = np.cumsum(shares / shares.sum())
    drawn = np.random.default_rng(0).random(IDS)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    np.minimum(np.searchsorted(limits, drawn), vocab_size - 1).astype("<u2").tofile(scratch)
    os.replace(scratch, path)
    return path
