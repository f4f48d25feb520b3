"""Which tokens are in which batch: a pure function of seed and step, so that resuming needs no state of the loader."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from marin.errors import DataError
from marin.training.loss import MASKED
from marin.training.shuffle import Words, mix, permuted

Tokens: TypeAlias = NDArray[np.int32]

MIXTURE_BLOCK = 2048
"""In every so many sequences the mixture is exact to the nearest sequence. One in it is the smallest share."""


class TokenReader(Protocol):
    """A flat stream of tokens with fast access to any window of it."""

    @property
    def num_tokens(self) -> int: ...

    def tokens(self, start: int, count: int) -> NDArray[np.integer]:
        """``count`` tokens from ``start`` on."""
        ...


@dataclass(frozen=True, kw_only=True)
class Component:
    """One data set of the mixture. A window is ``seq_len + 1`` tokens and begins where the last prediction ended."""

    name: str
    reader: TokenReader
    weight: float

    def windows(self, seq_len: int) -> int:
        return max(0, (self.reader.num_tokens - 1) // seq_len)


class TrainingData:
    """The training batches of a mixture, in an order that ``seed`` alone decides.

    Within one epoch of a component each of its windows comes exactly once; every epoch has an order of its own.
    """

    def __init__(self, components: Sequence[Component], *, seq_len: int, batch_size: int, seed: int) -> None:
        """Raises ``DataError`` for a component with too few tokens or too small a share."""
        self._components = [component for component in components if component.weight > 0]
        self._seq_len, self._batch_size, self._seed = seq_len, batch_size, seed
        self._windows = [component.windows(seq_len) for component in self._components]
        for component, windows in zip(self._components, self._windows, strict=True):
            if not windows:
                raise DataError(
                    f"{component.name} has {component.reader.num_tokens} training tokens, fewer than the {seq_len + 1} "
                    f"of one window (seq_len + 1): give it more text, or lower seq_len={seq_len}"
                )
        if self.num_windows < batch_size:
            raise DataError(
                f"the training data ({', '.join(c.name for c in self._components)}) holds {self.num_windows} windows "
                f"of seq_len={seq_len} tokens, fewer than one batch of {batch_size}: "
                "lower batch_size or seq_len, or give more text"
            )
        self._counts = mixture_counts([component.weight for component in self._components])
        for component, count in zip(self._components, self._counts, strict=True):
            if not count:
                raise DataError(
                    f"the weight of {component.name} gives it less than one in {MIXTURE_BLOCK} sequences, which is "
                    "never: raise its weight, or leave it out"
                )
        self._block = functools.lru_cache(maxsize=4)(self._make_block)

    @property
    def num_windows(self) -> int:
        """Windows of all components together: what one epoch consists of."""
        return sum(self._windows)

    def shares(self, num_steps: int) -> list[tuple[str, int, float]]:
        """Name, sequences and epochs of each component after ``num_steps`` steps."""
        sequences = self._sequences_before(num_steps * self._batch_size)
        rows = zip(self._components, sequences, self._windows, strict=True)
        return [(component.name, int(count), int(count) / windows) for component, count, windows in rows]

    def batch(self, step: int) -> Tokens:
        """The tokens of update ``step`` (from 0): ``[batch_size, seq_len + 1]``. Takes the same time for any step."""
        window_of = self.windows(step)
        rows = np.empty((self._batch_size, self._seq_len + 1), np.int32)
        for row, (component, window) in enumerate(window_of):
            rows[row] = self._components[component].reader.tokens(window * self._seq_len, self._seq_len + 1)
        return rows

    def windows(self, step: int) -> list[tuple[int, int]]:
        """Which windows are in the batch of ``step``: pairs of component and window."""
        first = step * self._batch_size
        positions = np.arange(first, first + self._batch_size)
        components, ordinals = self._assignment(positions)
        windows = np.empty(len(positions), np.uint64)
        for number, size in enumerate(self._windows):
            chosen = components == number
            epochs, within = np.divmod(ordinals[chosen], size)
            windows[chosen] = permuted(within.astype(np.uint64), size, mix(self._seed, number, epochs))
        return list(zip(components.tolist(), windows.tolist(), strict=True))

    def _assignment(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which component each position of the endless sequence of windows takes from, and how many it took before."""
        if len(self._components) == 1:
            return np.zeros_like(positions), positions
        blocks, slots = np.divmod(positions, MIXTURE_BLOCK)
        components, ordinals = np.empty_like(positions), np.empty_like(positions)
        for block in np.unique(blocks):
            here = blocks == block
            order, rank = self._block(int(block))
            components[here] = order[slots[here]]
            ordinals[here] = int(block) * self._counts[components[here]] + rank[slots[here]]
        return components, ordinals

    def _make_block(self, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The component of each slot of a block, and how many slots before it have the same one."""
        hashes: Words = mix(self._seed, 1 << 63, block, np.arange(MIXTURE_BLOCK))
        order = np.repeat(np.arange(len(self._counts)), self._counts)[np.argsort(hashes, kind="stable")]
        rank = np.empty_like(order)
        for number, count in enumerate(self._counts):
            rank[order == number] = np.arange(count)
        return order, rank

    def _sequences_before(self, position: int) -> NDArray[np.int64]:
        blocks, slots = divmod(position, MIXTURE_BLOCK)
        if len(self._components) == 1:
            return np.array([position])
        partial = np.bincount(self._block(blocks)[0][:slots], minlength=len(self._counts))
        return blocks * self._counts + partial


def mixture_counts(weights: Sequence[float]) -> NDArray[np.int64]:
    """Sequences of each component in a block of ``MIXTURE_BLOCK``: proportional, the largest remainders rounded up.

    >>> mixture_counts([1.0, 1.0, 2.0]).tolist()
    [512, 512, 1024]
    """
    relative = np.asarray(weights, np.float64) / np.max(weights)  # their sum alone might overflow
    exact = relative / np.sum(relative) * MIXTURE_BLOCK
    counts = np.floor(exact).astype(np.int64)
    missing = MIXTURE_BLOCK - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def validation_batches(reader: TokenReader, *, seq_len: int, batch_size: int) -> Iterator[Tokens]:
    """Every token of ``reader`` but the first as a target, once, in order: ``[batch_size, seq_len + 1]`` each.

    What is missing in the last window and the last batch is ``MASKED``.
    """
    targets = reader.num_tokens - 1
    windows = -(-targets // seq_len)
    for first in range(0, windows, batch_size):
        rows = np.full((batch_size, seq_len + 1), MASKED, np.int32)
        for row, window in enumerate(range(first, min(first + batch_size, windows))):
            start = window * seq_len
            count = min(seq_len + 1, reader.num_tokens - start)
            rows[row, :count] = reader.tokens(start, count)
        yield rows
