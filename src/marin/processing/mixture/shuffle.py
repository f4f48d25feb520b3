"""Permutations that are computed, not stored: position ``i`` of a shuffled order in constant time and memory.

The order depends on nothing but the numbers given here: no library's random stream, which a new release may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]

_ROUNDS = 6
"""Of the Feistel network. Four make a good permutation; two more cost little."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(*parts: Any) -> Words:
    """A hash of integers, element by element: 64 well-mixed bits (the finaliser of splitmix64, once per part)."""
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            state = (state ^ np.asarray(part, np.uint64)) + _GOLDEN
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return state


class Permutations:
    """One family of permutations for each of ``sizes``; a family has a member for every key.

    >>> order = Permutations([5, 8]).at(np.zeros(5, np.int64), np.arange(5), mix(np.full(5, 7)))
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = np.array(sizes, np.uint64)
        self._half_bits = np.array([max(1, ((size - 1).bit_length() + 1) // 2) for size in sizes], np.uint64)

    def at(self, families: NDArray[np.int64], positions: NDArray[np.int64], keys: Words) -> NDArray[np.int64]:
        """Where each of ``positions``, below the size of its family, goes in the permutation of its key."""
        sizes, half_bits = self._sizes[families], self._half_bits[families]
        result = _feistel(positions.astype(np.uint64), half_bits, keys)
        # The network permutes a power of four, up to four times the size: walk on until the value lies inside.
        while len(outside := np.flatnonzero(result >= sizes)):
            result[outside] = _feistel(result[outside], half_bits[outside], keys[outside])
        return result.astype(np.int64)


def _feistel(values: Words, half_bits: Words, keys: Words) -> Words:
    low = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = values >> half_bits, values & low
    for number in range(_ROUNDS):
        left, right = right, left ^ (mix(keys, number, right) & low)
    return (left << half_bits) | right
