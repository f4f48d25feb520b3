"""Rotary positions."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from marin.training.models.rope_scaling import RopeScaling

Array = jax.Array

_ONE = np.float32(1.0)


def rope_table(
    positions: Array, head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[Array, Array]:
    """Cosines and sines of the rotary angles: ``[batch, seq] -> [batch, seq, 1, head_dim / 2]`` each."""
    angles = positions.astype(jnp.float32)[:, :, None, None] * frequencies(head_dim, theta, scaling)
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Array, rotation: tuple[Array, Array]) -> Array:
    """Turn each head by its position. Number ``i`` is paired with ``i + head_dim / 2``, as in Hugging Face's files."""
    cos, sin = rotation
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> NDArray[np.float32]:
    """How far each pair of numbers turns from one position to the next, in radians: ``[head_dim / 2]``.

    Rounded to float32 after each operation, in the order in which the models on the hub are computed: far from the
    begin of a text the last digit shows.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    # numpy's power in float32 is rounded in another way on each kind of processor.
    plain = _ONE / (np.float64(np.float32(theta)) ** exponents.astype(np.float64)).astype(np.float32)
    return plain if scaling is None else _scaled(plain, scaling)


def _scaled(plain: NDArray[np.float32], scaling: RopeScaling) -> NDArray[np.float32]:
    factor = np.float32(scaling.factor)
    if scaling.kind == "linear":
        return plain / factor
    low, high, length = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_max_seq_len
    assert low is not None
    assert high is not None
    assert length is not None  # the config has seen to it
    wavelength = _ONE / plain * np.float32(2 * math.pi)  # a quotient in one step would be rounded otherwise
    is_slow, is_fast = wavelength > np.float32(length / low), wavelength < np.float32(length / high)
    lowered = np.where(is_slow, plain / factor, plain)
    kept = (_ONE / wavelength * np.float32(length) - np.float32(low)) / np.float32(high - low)
    between = (_ONE - kept) * lowered / factor + kept * lowered
    return np.where(is_slow | is_fast, lowered, between).astype(np.float32)
