"""Token streams made from numbers, and mixtures of them."""

from __future__ import annotations

import numpy as np

from marin.processing.mixture.batches import Component, TrainingData
from marin.processing.mixture.mixture import MixtureStage


class Stream:
    """Documents of the given lengths. Token ``i`` of the flat stream is ``first + i``: it says where it was.

    Nothing is stored, so that a stream may be as long as one likes.
    """

    dtype = np.dtype(np.uint32)

    def __init__(self, *lengths, first=0, mask=None):
        self.num_documents, self.num_tokens = len(lengths), sum(lengths)
        self._ends, self._first, self._mask = np.cumsum(lengths, dtype=np.int64), first, mask

    def tokens(self, start, count):
        assert start >= 0
        assert start + count <= self.num_tokens
        return (self._first + start + np.arange(count)).astype(self.dtype)

    def windows(self, starts, length):
        assert ((starts >= 0) & (starts + length <= self.num_tokens)).all()
        return (self._first + starts[:, None] + np.arange(length)).astype(self.dtype)

    def document_ends(self, start, count):
        return self._ends[(self._ends > start) & (self._ends <= start + count)]

    def loss_mask(self, start, count):
        # Of no tokens there is nothing to say, as with the streams of caches.
        return None if self._mask is None or not count else np.asarray(self._mask)[start : start + count]


def stages(*weights, at=()):
    """One stage for each tuple of weights; the first begins at step 0, the others at the steps of ``at``."""
    steps = [0, *at]
    return [
        MixtureStage(start_step=step, weights=tuple(map(float, each)))
        for step, each in zip(steps, weights, strict=True)
    ]


def data(*sizes, weights=None, at=(), limits=None, seq_len=4, batch_size=3, seed=0, **options):
    """A mixture of streams with ``sizes`` windows each. ``weights``: numbers, or tuples of them for each stage."""
    given = weights or [1.0] * len(sizes)
    of_stages = given if isinstance(given[0], tuple) else [tuple(given)]
    components = [
        Component(name=f"set {number}", stream=Stream(size * seq_len + 1), max_train_batches=limit)
        for number, (size, limit) in enumerate(zip(sizes, limits or [None] * len(sizes), strict=True))
    ]
    return TrainingData(
        components, stages(*of_stages, at=at), seq_len=seq_len, batch_size=batch_size, seed=seed, **options
    )


def pairs(training_data, step, **host):
    """Component and window of each row of a batch."""
    components, windows = training_data.windows(step, **host)
    return list(zip(components.tolist(), windows.tolist(), strict=True))


def order(training_data, num_steps):
    """The windows of the first steps, batch after batch."""
    return [pair for step in range(num_steps) for pair in pairs(training_data, step)]
