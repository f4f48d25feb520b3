"""Causal self-attention."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

Array = jax.Array

CPU_BLOCKS = 8
"""Into how many blocks of queries a sequence is cut. Each looks only at the keys before its end, which saves almost
half of the work; more blocks save little more and make smaller, slower products."""

MIN_BLOCK = 64
"""Fewest queries in a block: smaller products do not fill the vector units."""


def causal_attention(q: Array, k: Array, v: Array, dtype: jnp.dtype) -> Array:
    """Softmax attention of every position to itself and those before it.

    ``q: [batch, seq, heads, dim]``, ``k`` and ``v``: ``[batch, seq, kv_heads, dim]``; the result is shaped as ``q``.
    Products take operands in ``dtype``; the softmax is float32.
    """
    batch, seq, heads, dim = q.shape
    kv_heads = k.shape[2]
    grouped = (q / math.sqrt(dim)).reshape(batch, seq, kv_heads, heads // kv_heads, dim)
    queries = grouped.transpose(0, 2, 3, 1, 4).astype(dtype)  # batch, kv_heads, group, seq, dim
    keys = k.transpose(0, 2, 1, 3).astype(dtype)
    values = v.transpose(0, 2, 1, 3).astype(dtype)
    size = block_size(seq)
    blocks = [_block(queries, keys, values, start, min(start + size, seq)) for start in range(0, seq, size)]
    mixed = jnp.concatenate(blocks, axis=3) if len(blocks) > 1 else blocks[0]
    return mixed.transpose(0, 3, 1, 2, 4).reshape(batch, seq, heads, dim)


def block_size(seq: int) -> int:
    """How many queries are handled together.

    >>> block_size(2048), block_size(200), block_size(1)
    (256, 64, 64)
    """
    return max(MIN_BLOCK, -(-seq // CPU_BLOCKS))


def _block(queries: Array, keys: Array, values: Array, start: int, end: int) -> Array:
    q, k, v = queries[..., start:end, :], keys[:, :, None, :end, :], values[:, :, None, :end, :]
    scores = jnp.einsum("bkgqd,bkhsd->bkgqs", q, k, preferred_element_type=jnp.float32)
    visible = jnp.arange(start, end)[:, None] >= jnp.arange(end)[None, :]
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bkgqs,bkhsd->bkgqd", weights.astype(q.dtype), v, preferred_element_type=jnp.float32)
