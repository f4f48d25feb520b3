"""Causal self-attention: one function, three ways to compute it.

``reference`` is the plain formula, which the tests measure the others by. ``blocked`` is for CPUs. ``accelerated`` is
``jax.nn.dot_product_attention``: with cuDNN's kernel on NVIDIA GPUs where that takes the operands, as XLA's own program
elsewhere. On CPUs all three are tested against each other, gradients included, with XLA's program for the third; for
CUDA and TPU the third is lowered in a test. No test has run it on a GPU or TPU, and cuDNN's kernel has not run at all.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp

from marin.training.models.compute import Compute

Array = jax.Array

CPU_BLOCKS = 8
"""Into how many blocks of queries a sequence is cut. Each looks only at the keys before its end, which saves almost
half of the work; more blocks save little more and make smaller, slower products."""

Kernel: TypeAlias = Literal["cudnn", "xla"]

MIN_BLOCK = 64
"""Fewest queries in a block: smaller products do not fill the vector units."""


def attention(q: Array, k: Array, v: Array, *, segment_ids: Array | None, compute: Compute) -> Array:
    """Softmax attention of every position to itself and to those before it in its segment.

    ``q: [batch, seq, heads, dim]``, ``k`` and ``v``: ``[batch, seq, kv_heads, dim]``, ``segment_ids: [batch, seq]`` or
    ``None`` for one segment per row; the result is shaped as ``q``. Products take operands in ``compute.dtype``; the
    softmax is float32. The paths differ by rounding only.
    """
    if compute.attention == "accelerated":
        kernel = kernel_of(compute, head_dim=q.shape[-1], seq=q.shape[1], masked=segment_ids is not None)
        return accelerated(q, k, v, segment_ids, compute.dtype, kernel)
    seq = q.shape[1]
    return _in_blocks(q, k, v, segment_ids, compute.dtype, seq if compute.attention == "reference" else block_size(seq))


def _in_blocks(q: Array, k: Array, v: Array, segment_ids: Array | None, dtype: jnp.dtype, size: int) -> Array:
    batch, seq, heads, dim = q.shape
    kv_heads = k.shape[2]
    grouped = (q / math.sqrt(dim)).reshape(batch, seq, kv_heads, heads // kv_heads, dim)
    queries = grouped.transpose(0, 2, 3, 1, 4).astype(dtype)  # batch, kv_heads, group, seq, dim
    keys = k.transpose(0, 2, 1, 3).astype(dtype)
    values = v.transpose(0, 2, 1, 3).astype(dtype)
    blocks = [
        _block(queries, keys, values, segment_ids, start, min(start + size, seq)) for start in range(0, seq, size)
    ]
    mixed = jnp.concatenate(blocks, axis=3) if len(blocks) > 1 else blocks[0]
    return mixed.transpose(0, 3, 1, 2, 4).reshape(batch, seq, heads, dim)


def block_size(seq: int) -> int:
    """How many queries are handled together.

    >>> block_size(2048), block_size(200), block_size(1)
    (256, 64, 64)
    """
    return max(MIN_BLOCK, -(-seq // CPU_BLOCKS))


def _block(queries: Array, keys: Array, values: Array, segment_ids: Array | None, start: int, end: int) -> Array:
    q, k, v = queries[..., start:end, :], keys[:, :, None, :end, :], values[:, :, None, :end, :]
    scores = jnp.einsum("bkgqd,bkhsd->bkgqs", q, k, preferred_element_type=jnp.float32)
    visible = jnp.arange(start, end)[:, None] >= jnp.arange(end)[None, :]
    if segment_ids is not None:
        same = segment_ids[:, start:end, None] == segment_ids[:, None, :end]
        visible = (visible & same)[:, None, None]
    weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bkgqs,bkhsd->bkgqd", weights.astype(q.dtype), v, preferred_element_type=jnp.float32)


def kernel_of(compute: Compute, *, head_dim: int, seq: int, masked: bool) -> Kernel:
    """Which kernel ``accelerated`` uses: cuDNN's where it takes such operands, else the one that takes all."""
    device = compute.device
    if device.platform != "gpu" or "rocm" in device.client.platform_version.lower():
        return "xla"
    largest = 256 if float(device.compute_capability) >= 9.0 else 128
    fits = head_dim % 8 == 0 and head_dim <= largest and not (masked and seq % 2)
    return "cudnn" if fits and compute.dtype in (jnp.bfloat16, jnp.float16) else "xla"


def accelerated(q: Array, k: Array, v: Array, segment_ids: Array | None, dtype: jnp.dtype, kernel: Kernel) -> Array:
    """As ``attention``. Segments are a mask, ``[batch, 1, seq, seq]``."""
    mask = None if segment_ids is None else (segment_ids[:, :, None] == segment_ids[:, None, :])[:, None]
    low = (each.astype(dtype) for each in (q, k, v))
    mixed = jax.nn.dot_product_attention(*low, mask=mask, is_causal=True, implementation=kernel)
    return mixed.astype(jnp.float32)
