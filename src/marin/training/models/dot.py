"""Matrix products in the precision of training."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from marin.training.models.compute import Compute

Array = jax.Array


def dot(x: Array, w: Array, dtype: jnp.dtype) -> Array:
    """``x @ w``, operands in ``dtype``, sum and result in float32: ``[..., in] x [in, out] -> [..., out]``."""
    if dtype == jnp.float32:
        return jnp.matmul(x, w, preferred_element_type=jnp.float32)
    return _low_precision_dot(x, w, dtype)


def dots(x: Array, matrices: Sequence[Array], compute: Compute) -> list[Array]:
    """``x`` times each of the matrices, which have equally many rows.

    Fewer and larger products are faster, so it is one where that can be. Matrices whose columns are cut over devices
    are multiplied one by one: joined, their columns would have to be sent about.
    """
    if compute.tensor_parts > 1:
        return [dot(x, matrix, compute.dtype) for matrix in matrices]
    ends = list(itertools.accumulate(matrix.shape[1] for matrix in matrices))
    return jnp.split(dot(x, jnp.concatenate(matrices, axis=1), compute.dtype), ends[:-1], axis=-1)


# Automatic transposition would multiply a float32 cotangent by a bfloat16 operand, which misses the fast matrix units
# of CPUs and accelerators alike; so the backward products are written out with both operands cast.
@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _low_precision_dot(x: Array, w: Array, dtype: jnp.dtype) -> Array:
    return jnp.matmul(x.astype(dtype), w.astype(dtype), preferred_element_type=jnp.float32)


def _forward(x: Array, w: Array, dtype: jnp.dtype) -> tuple[Array, tuple[Array, Array]]:
    low_x, low_w = x.astype(dtype), w.astype(dtype)
    return jnp.matmul(low_x, low_w, preferred_element_type=jnp.float32), (low_x, low_w)


def _backward(dtype: jnp.dtype, saved: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    x, w = saved
    low = cotangent.astype(dtype)
    dx = jnp.matmul(low, w.T, preferred_element_type=jnp.float32)
    rows, cols = x.reshape(-1, x.shape[-1]), low.reshape(-1, low.shape[-1])
    return dx, jnp.matmul(rows.T, cols, preferred_element_type=jnp.float32)


_low_precision_dot.defvjp(_forward, _backward)
