"""The step: gradients against finite differences, AdamW against its formulas, and what a bad number does."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from marin.training.arrays import named_arrays
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import AdamConfig
from marin.training.update import batch_loss, decays, make_optimizer, make_update, new_state

MODEL = LlamaConfig(hidden_dim=16, intermediate_dim=24, num_layers=1, num_heads=2, num_kv_heads=1, max_seq_len=64)
VOCAB = 40
F32 = jnp.dtype("float32")


LOSS = jax.jit(lambda params, batch: batch_loss(params, batch, MODEL, F32, 0.0)[0])
GRADIENT = jax.jit(jax.grad(LOSS))


def tokens(rows=4, length=17, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, (rows, length)).astype(np.int32)


def state(seed=0, optimizer=None):
    return new_state(MODEL, optimizer or AdamConfig(lr=1e-3), vocab_size=VOCAB, seed=seed)


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


def test_weights_decay_and_norms_do_not():
    flags = {name: bool(flag) for name, flag in named_arrays(decays(state().params)).items()}
    assert {name for name, decayed in flags.items() if not decayed} == {
        "norm",
        "layers.0.input_layernorm",
        "layers.0.post_attention_layernorm",
    }


def test_adam_follows_its_formulas():
    config = AdamConfig(lr=0.0123, betas=(0.9, 0.95), weight_decay=0.1, clip_norm=1.0)
    random = np.random.default_rng(0)
    params = {"matrix": random.normal(size=(5, 4)), "vector": random.normal(size=4)}
    ours = jax.tree.map(lambda array: jnp.asarray(array, F32), params)
    transformation = make_optimizer(config)
    optimizer_state = transformation.init(ours)
    m, v = ({name: np.zeros_like(array) for name, array in params.items()} for _ in range(2))
    for step in range(200):
        scale = 10.0 ** random.uniform(-4, 1)  # above and below the clipping norm
        gradient = {name: scale * random.normal(size=array.shape) for name, array in params.items()}
        directions, optimizer_state = transformation.update(
            jax.tree.map(lambda array: jnp.asarray(array, F32), gradient), optimizer_state, ours
        )
        ours = jax.tree.map(lambda array, way: array - config.lr * way, ours, directions)
        norm = math.sqrt(sum((g**2).sum() for g in gradient.values()))
        for name in params:
            g = gradient[name] * min(1.0, config.clip_norm / norm)
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.95 * v[name] + 0.05 * g**2
            way = (m[name] / (1 - 0.9 ** (step + 1))) / (np.sqrt(v[name] / (1 - 0.95 ** (step + 1))) + config.eps)
            decay = config.weight_decay * params[name] if params[name].ndim == 2 else 0
            params[name] = params[name] - config.lr * (way + decay)
    for name in params:
        np.testing.assert_allclose(ours[name], params[name], atol=1e-5)


def test_a_step_is_the_optimizer_on_the_mean_loss():
    config = AdamConfig(lr=1e-3)
    start, batch = state(optimizer=config), tokens()
    gradient = jax.tree.map(lambda array: array / (4 * 16), GRADIENT(start.params, batch))
    directions, _ = make_optimizer(config).update(gradient, start.optimizer, start.params)
    expected = named_arrays(optax.apply_updates(start.params, jax.tree.map(lambda way: -0.5 * way, directions)))
    update = make_update(MODEL, config, precision="float32", z_loss=0.0)
    after, measured = update(start, batch, np.float32(0.5))
    assert bool(measured.finite)
    np.testing.assert_allclose(measured.gradient_norm, optax.tree.norm(gradient), rtol=1e-5)
    for name, array in named_arrays(after.params).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-4)


def test_a_number_that_is_not_finite_leaves_the_state_as_it_was():
    config = AdamConfig(lr=1e-3)
    start = state(optimizer=config)
    start.params["lm_head"] = start.params["lm_head"].at[0, 3].set(jnp.inf)
    before = {name: array.copy() for name, array in named_arrays(start).items()}
    after, measured = make_update(MODEL, config, precision="float32", z_loss=0.0)(start, tokens(), np.float32(1e-3))
    assert not bool(measured.finite)
    for name, array in named_arrays(after).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_one_batch_is_learned_by_heart(precision):
    config = AdamConfig(lr=1e-2, weight_decay=0.0)
    update, now, batch = make_update(MODEL, config, precision=precision, z_loss=0.0), state(optimizer=config), tokens()
    for _ in range(150):
        now, measured = update(now, batch, np.float32(config.lr))
    assert float(measured.loss) < 0.1
