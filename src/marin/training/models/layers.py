"""A stack of equal layers: unrolled, or as one scanned program.

Parameters are kept with the layers as a list. For a scan they are stacked: each array of a layer becomes one of all
layers, with a first axis more. A scan compiles in the time of one layer; on CPUs the unrolled program is as fast, and
small models compile quickly anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from marin.training.models.compute import Compute

Array = jax.Array

LAYERS = "layers"
"""The key of the layers in the parameters of a model."""


def apply_layers(layer: Callable[[Any, Array], Array], x: Array, layers: Any, compute: Compute) -> Array:
    """``x`` after each ``layer(params, x)``: of a list of ``layers``, or along the first axis of stacked arrays."""
    one = jax.checkpoint(layer) if compute.remat else layer
    if isinstance(layers, list):
        traced_once = jax.jit(one)  # where layers are alike
        for params in layers:
            x = traced_once(params, x)
        return x

    def step(carry: Array, params: Any) -> tuple[Array, None]:
        return one(params, carry), None

    return jax.lax.scan(step, x, layers)[0]


def stack_layers(params: Any) -> Any:
    """``params`` with its list of layers as stacked arrays."""
    if not isinstance(params.get(LAYERS), list):
        return params
    return {**params, LAYERS: jax.tree.map(lambda *arrays: jnp.stack(arrays), *params[LAYERS])}


def unstack_layers(params: Any) -> Any:
    """The opposite of ``stack_layers``."""
    stacked = params.get(LAYERS)
    if stacked is None or isinstance(stacked, list):
        return params
    count = max((len(array) for array in jax.tree.leaves(stacked)), default=0)  # none: other hosts have them
    return {**params, LAYERS: [jax.tree.map(lambda array, i=i: array[i], stacked) for i in range(count)]}
