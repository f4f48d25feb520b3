"""What a model reads."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class Inputs(NamedTuple):
    """Token ids and where they stand, int32, ``[batch, seq]`` each.

    ``segment_ids``: tokens attend to those of their own segment only; ``None``: each row is one segment.
    ``positions``: counted from 0 in each segment; ``None``: from the begin of the row.
    """

    tokens: Array
    positions: Array | None = None
    segment_ids: Array | None = None


def positions_of(inputs: Inputs) -> Array:
    """``inputs.positions``, or the places in the row: ``[batch or 1, seq]``."""
    return jnp.arange(inputs.tokens.shape[1])[None] if inputs.positions is None else inputs.positions
