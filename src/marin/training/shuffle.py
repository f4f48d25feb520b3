"""Permutations that are computed, not stored: position ``i`` of a shuffled order in constant time and memory.

The order depends on nothing but the numbers given here: no library's random stream, which a new release may change.
"""

from __future__ import annotations

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


def permuted(positions: Words, size: int, key: Words) -> Words:
    """Where each of ``positions`` (below ``size``) goes in the permutation of ``range(size)`` named by its ``key``.

    >>> order = permuted(np.arange(5, dtype=np.uint64), 5, mix(np.full(5, 7)))
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4]
    """
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = np.broadcast_to(key, positions.shape)
    result = _feistel(positions, half_bits, keys)
    # The network permutes a power of four, up to four times size: walk on until the value lies inside.
    while (outside := result >= np.uint64(size)).any():
        result[outside] = _feistel(result[outside], half_bits, keys[outside])
    return result


def _feistel(values: Words, half_bits: int, keys: Words) -> Words:
    shift, low = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = values >> shift, values & low
    for number in range(_ROUNDS):
        left, right = right, left ^ (mix(keys, number, right) & low)
    return (left << shift) | right
