"""The step: gradients against finite differences, the update, and what a bad number does."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from marin.training.arrays import named_arrays
from marin.training.models.compute import Compute
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizer_rules import transformation_of
from marin.training.optimizers import AdamConfig
from marin.training.placement import make_placement
from marin.training.update import Rows, batch_loss, make_update, new_state

MODEL = LlamaConfig(hidden_dim=16, intermediate_dim=24, num_layers=1, num_heads=2, num_kv_heads=1, max_seq_len=64)
VOCAB = 40
F32 = jnp.dtype("float32")


EXACT = Compute(dtype=F32)
LOSS = jax.jit(lambda params, batch: batch_loss(params, Rows(batch), MODEL, EXACT).lowered)
GRADIENT = jax.jit(jax.grad(LOSS))


def tokens(rows=4, length=17, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, (rows, length)).astype(np.int32)


def placement(precision="float32"):
    return make_placement(jax.devices()[:1], None, precision=precision)


def state(seed=0, optimizer=None):
    return new_state(MODEL, optimizer or AdamConfig(lr=1e-3), vocab_size=VOCAB, seed=seed, placement=placement())


def update_of(config=None, precision="float32", **choices):
    choices = {"state": state(), "placement": placement(precision), **choices}
    return make_update(MODEL, config or AdamConfig(lr=1e-3), **choices)


def test_the_first_loss_is_that_of_guessing():
    loss = LOSS(state().params, tokens()) / (4 * 16)
    assert float(loss) == pytest.approx(math.log(VOCAB), abs=0.1)


@pytest.mark.parametrize(
    "name", ["embed_tokens", "layers.0.self_attn.k_proj", "layers.0.mlp.gate_proj", "norm", "lm_head"]
)
def test_gradients_equal_finite_differences(name):
    leaves, structure = jax.tree.flatten(state().params)
    position = list(named_arrays(state().params)).index(name)
    gradient = np.asarray(jax.tree.leaves(GRADIENT(state().params, tokens()))[position])
    sideways = np.random.default_rng(1).normal(size=gradient.shape)
    direction = gradient / np.linalg.norm(gradient) + sideways / np.linalg.norm(sideways)

    def loss_at(distance):
        moved = [leaf + distance * direction if i == position else leaf for i, leaf in enumerate(leaves)]
        return float(LOSS(jax.tree.unflatten(structure, moved), tokens()))

    measured = (loss_at(1e-2) - loss_at(-1e-2)) / 2e-2
    assert measured == pytest.approx(float(np.sum(direction * gradient)), rel=2e-2)


def test_a_step_is_the_optimizer_on_the_mean_loss():
    config = AdamConfig(lr=1e-3)
    start, batch = state(optimizer=config), tokens()
    gradient = jax.tree.map(lambda array: array / (4 * 16), GRADIENT(start.params, batch))
    directions, _ = transformation_of(config).update(gradient, start.optimizer, start.params)
    expected = named_arrays(optax.apply_updates(start.params, jax.tree.map(lambda way: -0.5 * way, directions)))
    update = update_of(config)
    after, measured = update(start, Rows(batch), np.float32(0.5))
    assert bool(measured.finite)
    np.testing.assert_allclose(measured.gradient_norm, optax.tree.norm(gradient), rtol=1e-5)
    for name, array in named_arrays(after.params).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-4)


def test_a_number_that_is_not_finite_leaves_the_state_as_it_was():
    config = AdamConfig(lr=1e-3)
    start = state(optimizer=config)
    start.params["lm_head"] = start.params["lm_head"].at[0, 3].set(jnp.inf)
    before = {name: array.copy() for name, array in named_arrays(start).items()}
    after, measured = update_of(config)(start, Rows(tokens()), np.float32(1e-3))
    assert not bool(measured.finite)
    for name, array in named_arrays(after).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_batch_is_learned_by_heart(precision):
    config = AdamConfig(lr=1e-2, weight_decay=0.0)
    update, now, batch = update_of(config, precision), state(optimizer=config), tokens()
    for _ in range(150):
        now, measured = update(now, Rows(batch), np.float32(config.lr))
    assert float(measured.loss) < 0.1


def test_a_masked_target_is_not_learned_and_still_read():
    batch, learned = tokens(rows=2), np.ones((2, 16), bool)
    learned[:, 7] = False

    def sums(tokens, mask=None):
        _, nats, count = batch_loss(state().params, Rows(tokens, mask), MODEL, EXACT)
        return float(nats), int(count)

    whole, count = sums(batch)
    part, fewer = sums(batch, learned)
    assert (int(count), int(fewer)) == (32, 30)
    assert float(part) < float(whole)
    other = batch.copy()
    other[:, 8] = (other[:, 8] + 1) % VOCAB  # the target of input 7, and the input of the targets behind it
    changed, _ = sums(other, learned)
    assert float(changed) != float(part)
    learned[:, 8:] = False
    before, _ = sums(batch, learned)
    after, _ = sums(other, learned)
    assert float(before) == float(after)


def test_a_mask_of_nothing_changes_no_bit():
    update = update_of()
    plain, _ = update(state(), Rows(tokens()), np.float32(1e-3))
    masked, _ = update(state(), Rows(tokens(), np.ones((4, 16), bool)), np.float32(1e-3))
    assert [bytes(each) for each in jax.tree.leaves(jax.device_get(plain))] == [
        bytes(each) for each in jax.tree.leaves(jax.device_get(masked))
    ]


def test_a_batch_without_anything_to_learn_is_a_step_without_a_gradient():
    update = update_of()
    _, measured = update(state(), Rows(tokens(), np.zeros((4, 16), bool)), np.float32(1e-3))
    assert (float(measured.loss), float(measured.gradient_norm), bool(measured.finite)) == (0.0, 0.0, True)
