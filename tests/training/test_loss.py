import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training import loss
from marin.training.loss import MASKED
from marin.training.models.compute import Compute

F32 = jnp.dtype("float32")


def next_token_loss(hidden, head, targets, z_loss=0.0):
    """What is lowered, for one row."""
    lowered, _ = loss.next_token_loss(hidden[None], head, targets[None], compute=Compute(dtype=F32), z_loss=z_loss)
    return lowered


def full_softmax(hidden, head, targets, z_loss):
    """The definition, with the logits of all tokens at once."""
    logits = hidden @ head
    lse = jax.nn.logsumexp(logits, axis=-1)
    picked = logits[jnp.arange(len(targets)), jnp.maximum(targets, 0)]
    return jnp.sum(jnp.where(targets == MASKED, 0.0, lse - picked + z_loss * lse**2))


def example(tokens, seed=0):
    random = np.random.default_rng(seed)
    hidden = jnp.asarray(random.normal(size=(tokens, 8)), F32)
    head = jnp.asarray(random.normal(size=(8, 20)), F32)
    targets = random.integers(0, 20, tokens)
    targets[random.random(tokens) < 0.2] = MASKED
    return hidden, head, jnp.asarray(targets)


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 100])
@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_loss_and_gradients_equal_the_full_softmax(tokens, z_loss, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_TOKENS", 16)
    hidden, head, targets = example(tokens)
    fused = jax.value_and_grad(lambda h, w: 3 * next_token_loss(h, w, targets, z_loss=z_loss), (0, 1))
    full = jax.value_and_grad(lambda h, w: 3 * full_softmax(h, w, targets, z_loss), (0, 1))
    (value, gradients), (expected, expected_gradients) = fused(hidden, head), full(hidden, head)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_without_gradients_the_value_is_the_same(monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_TOKENS", 16)
    hidden, head, targets = example(50)
    value, _ = jax.value_and_grad(lambda h: next_token_loss(h, head, targets))(hidden)
    np.testing.assert_allclose(next_token_loss(hidden, head, targets), value, rtol=1e-6)


def test_masked_targets_change_nothing():
    hidden, head, targets = example(50)
    kept = np.flatnonzero(targets != MASKED)
    assert 0 < len(kept) < 50
    np.testing.assert_allclose(
        next_token_loss(hidden, head, targets),
        next_token_loss(hidden[kept], head, targets[kept]),
        rtol=1e-5,
    )


def test_large_logits_stay_finite():
    hidden, head, targets = example(10)
    value, gradient = jax.value_and_grad(lambda h: next_token_loss(h, 1e4 * head, targets))(hidden)
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()


def test_the_cross_entropy_is_told_without_what_keeps_the_logits_small():
    hidden, head, targets = example(10)
    lowered, nats = loss.next_token_loss(hidden[None], head, targets[None], compute=Compute(dtype=F32), z_loss=0.1)
    np.testing.assert_allclose(nats, full_softmax(hidden, head, targets, 0.0), rtol=1e-5)
    np.testing.assert_allclose(lowered, full_softmax(hidden, head, targets, 0.1), rtol=1e-5)
