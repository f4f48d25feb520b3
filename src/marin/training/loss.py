"""Next-token loss, joined with the head so that the logits of a whole batch never exist."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from marin.training.models.compute import Compute

Array = jax.Array

MASKED = -1
"""A target that does not count."""

CHUNK_TOKENS = 256
"""Tokens whose logits exist at one time on a device: large enough for fast products, small enough for the cache."""


def next_token_loss(
    hidden: Array, head: Array, targets: Array, *, compute: Compute, z_loss: float = 0.0
) -> tuple[Array, Array]:
    """Sums over the unmasked targets, float32: what training lowers, and the cross-entropy alone, in nats.

    ``hidden: [batch, seq, hidden]``, ``head: [hidden, vocab]``, ``targets: [batch, seq]`` with ``MASKED`` for those
    that do not count. ``z_loss`` adds that many times the squared log-sum-exp of the logits to the first.

    >>> exact = Compute(dtype=jnp.dtype("float32"))
    >>> lowered, nats = next_token_loss(
    ...     jnp.zeros((1, 3, 2)), jnp.zeros((2, 4)), jnp.array([[1, 3, MASKED]]), compute=exact
    ... )
    >>> round(float(nats) / 2, 4)  # ln 4
    1.3863
    """
    parts = 1 if compute.mesh is None else compute.mesh.shape["data"] * compute.mesh.shape["fsdp"]
    rows = hidden.reshape(parts, -1, hidden.shape[-1])
    return _fused(rows, head, targets.reshape(parts, -1), compute, z_loss)


# Below, the first axis counts the parts into which the batch is cut over the devices: what is computed of a part needs
# nothing of the others, and the gradient of the head is summed over them once, at the end.


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _fused(rows: Array, head: Array, targets: Array, compute: Compute, z_loss: float) -> tuple[Array, Array]:
    low_head = _low_head(head, compute)

    def add(sums: tuple[Array, Array], chunk: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        nats, lse = _losses(_logits(chunk[0], low_head, compute), chunk[1])
        return (sums[0] + jnp.sum(nats), sums[1] + jnp.sum(lse * lse)), None

    (nats, squares), _ = jax.lax.scan(add, (jnp.zeros(()), jnp.zeros(())), _chunks(rows, targets, compute))
    return nats + z_loss * squares, nats


def _forward(
    rows: Array, head: Array, targets: Array, compute: Compute, z_loss: float
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The loss with both gradients, chunk by chunk: each chunk's logits are used at once and forgotten."""
    low_head, dtype = _low_head(head, compute), compute.dtype

    def add(sums: tuple[Array, Array, Array], chunk: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], Array]:
        inputs, wanted = chunk
        logits = _logits(inputs, low_head, compute)
        nats, lse = _losses(logits, wanted)
        dlogits = _dlogits(logits, lse, wanted, z_loss).astype(dtype)
        drows = jnp.matmul(dlogits, low_head.T, preferred_element_type=jnp.float32)
        low_inputs = inputs.astype(dtype)
        dhead = sums[2] + jnp.matmul(low_inputs.swapaxes(1, 2), dlogits, preferred_element_type=jnp.float32)
        dhead = compute.activations(dhead, "batch", None, "vocab")
        return (sums[0] + jnp.sum(nats), sums[1] + jnp.sum(lse * lse), dhead), drows

    start = (jnp.zeros(()), jnp.zeros(()), jnp.zeros((len(rows), *head.shape), jnp.float32))
    (nats, squares, dhead), drows = jax.lax.scan(add, start, _chunks(rows, targets, compute))
    drows = drows.swapaxes(0, 1).reshape(len(rows), -1, rows.shape[-1])[:, : rows.shape[1]]
    return (nats + z_loss * squares, nats), (drows, jnp.sum(dhead, axis=0))


def _backward(
    compute: Compute, z_loss: float, saved: tuple[Array, Array], cotangents: tuple[Array, Array]
) -> tuple[Array, Array, None]:
    del compute, z_loss
    drows, dhead = saved
    # Of what is lowered; the cross-entropy alone is there to be looked at.
    return cotangents[0] * drows, cotangents[0] * dhead, None


_fused.defvjp(_forward, _backward)


def _chunks(rows: Array, targets: Array, compute: Compute) -> tuple[Array, Array]:
    """``[chunks, parts, size, hidden]`` and ``[chunks, parts, size]``."""
    parts, tokens, width = rows.shape
    size = min(CHUNK_TOKENS, tokens)
    if padding := -tokens % size:
        rows = jnp.pad(rows, ((0, 0), (0, padding), (0, 0)))
        targets = jnp.pad(targets, ((0, 0), (0, padding)), constant_values=MASKED)
    chunked = rows.reshape(parts, -1, size, width).swapaxes(0, 1)
    return (
        compute.activations(chunked, None, "batch", None, None),
        compute.activations(targets.reshape(parts, -1, size).swapaxes(0, 1), None, "batch", None),
    )


def _low_head(head: Array, compute: Compute) -> Array:
    return compute.activations(head.astype(compute.dtype), None, "vocab")


def _logits(rows: Array, low_head: Array, compute: Compute) -> Array:
    logits = jnp.matmul(rows.astype(low_head.dtype), low_head, preferred_element_type=jnp.float32)
    return compute.activations(logits, "batch", None, "vocab")


def _losses(logits: Array, targets: Array) -> tuple[Array, Array]:
    """Cross-entropy and log-sum-exp, zero where the target is masked."""
    counted = targets != MASKED
    lse = jax.nn.logsumexp(logits, axis=-1)
    picked = jnp.take_along_axis(logits, jnp.maximum(targets, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(counted, lse - picked, 0.0), jnp.where(counted, lse, 0.0)


def _dlogits(logits: Array, lse: Array, targets: Array, z_loss: float) -> Array:
    probabilities = jnp.exp(logits - lse[..., None]) * (1 + 2 * z_loss * lse)[..., None]
    hit = jnp.arange(logits.shape[-1]) == targets[..., None]
    return jnp.where((targets == MASKED)[..., None], 0.0, probabilities - hit)
