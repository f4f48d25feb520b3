"""Next-token loss, joined with the head so that the logits of a whole batch never exist."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

Array = jax.Array

MASKED = -1
"""A target that does not count."""

CHUNK_TOKENS = 512
"""Tokens whose logits exist at one time: large enough for fast products, small enough to stay in the cache."""


def next_token_loss(hidden: Array, head: Array, targets: Array, *, dtype: jnp.dtype, z_loss: float = 0.0) -> Array:
    """Sum of the cross-entropy over unmasked targets, in nats, float32.

    ``hidden: [tokens, hidden]``, ``head: [hidden, vocab]``, ``targets: [tokens]`` with ``MASKED`` for those that do not
    count. ``z_loss`` adds that many times the squared log-sum-exp of the logits.

    >>> uniform = next_token_loss(jnp.zeros((3, 2)), jnp.zeros((2, 4)), jnp.array([1, 3, MASKED]), dtype=jnp.float32)
    >>> round(float(uniform) / 2, 4)  # ln 4
    1.3863
    """
    return _fused(hidden, head, targets, dtype, z_loss)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _fused(hidden: Array, head: Array, targets: Array, dtype: jnp.dtype, z_loss: float) -> Array:
    low_head = head.astype(dtype)

    def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        logits = _logits(chunk[0], low_head)
        losses, _ = _losses(logits, chunk[1], z_loss)
        return total + jnp.sum(losses), None

    total, _ = jax.lax.scan(add, jnp.zeros(()), _chunks(hidden, targets))
    return total


def _forward(
    hidden: Array, head: Array, targets: Array, dtype: jnp.dtype, z_loss: float
) -> tuple[Array, tuple[Array, Array]]:
    """The loss with both gradients, chunk by chunk: each chunk's logits are used at once and forgotten."""
    low_head = head.astype(dtype)

    def add(sums: tuple[Array, Array], chunk: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        total, dhead = sums
        rows, wanted = chunk
        logits = _logits(rows, low_head)
        losses, lse = _losses(logits, wanted, z_loss)
        dlogits = _dlogits(logits, lse, wanted, z_loss).astype(dtype)
        drows = jnp.matmul(dlogits, low_head.T, preferred_element_type=jnp.float32)
        dhead = dhead + jnp.matmul(rows.astype(dtype).T, dlogits, preferred_element_type=jnp.float32)
        return (total + jnp.sum(losses), dhead), drows

    start = (jnp.zeros(()), jnp.zeros(head.shape, jnp.float32))
    (total, dhead), dhidden = jax.lax.scan(add, start, _chunks(hidden, targets))
    return total, (dhidden.reshape(-1, hidden.shape[-1])[: hidden.shape[0]], dhead)


def _backward(
    dtype: jnp.dtype, z_loss: float, saved: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array, None]:
    del dtype, z_loss
    dhidden, dhead = saved
    return cotangent * dhidden, cotangent * dhead, None


_fused.defvjp(_forward, _backward)


def _chunks(hidden: Array, targets: Array) -> tuple[Array, Array]:
    tokens = hidden.shape[0]
    size = min(CHUNK_TOKENS, tokens)
    padding = -tokens % size
    if padding:
        hidden = jnp.pad(hidden, ((0, padding), (0, 0)))
        targets = jnp.pad(targets, (0, padding), constant_values=MASKED)
    return hidden.reshape(-1, size, hidden.shape[-1]), targets.reshape(-1, size)


def _logits(rows: Array, low_head: Array) -> Array:
    return jnp.matmul(rows.astype(low_head.dtype), low_head, preferred_element_type=jnp.float32)


def _losses(logits: Array, targets: Array, z_loss: float) -> tuple[Array, Array]:
    lse = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, jnp.maximum(targets, 0)[:, None], axis=-1)[:, 0]
    losses = lse - picked + z_loss * lse * lse
    return jnp.where(targets == MASKED, 0.0, losses), lse


def _dlogits(logits: Array, lse: Array, targets: Array, z_loss: float) -> Array:
    probabilities = jnp.exp(logits - lse[:, None]) * (1 + 2 * z_loss * lse)[:, None]
    hit = jnp.arange(logits.shape[-1])[None, :] == targets[:, None]
    return jnp.where((targets == MASKED)[:, None], 0.0, probabilities - hit)
