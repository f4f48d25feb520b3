"""Gradients: against finite differences, and of a batch in pieces against those of the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training.arrays import named_arrays
from marin.training.models.compute import Compute
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.implementation import implementation_of
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import SgdConfig
from marin.training.placement import make_placement
from marin.training.update import Rows, batch_loss, make_update, new_state
from tests.training.models.test_llama import lively

VOCAB = 40
EXACT = Compute(dtype=jnp.dtype("float32"))
GPT2 = Gpt2Config(hidden_dim=16, num_layers=1, num_heads=2, max_seq_len=32)
LLAMA = LlamaConfig(
    hidden_dim=16,
    intermediate_dim=24,
    num_layers=1,
    num_heads=2,
    num_kv_heads=1,
    max_seq_len=32,
    tie_embeddings=True,
    qkv_bias=True,
    qk_norm=True,
)


def rows_of_documents(rows=4, length=16, seed=0):
    """Rows in which documents begin anywhere, and some targets are not learned."""
    random = np.random.default_rng(seed)
    begins = random.random((rows, length)) < 0.2
    begins[:, 0] = False
    starts = np.maximum.accumulate(np.where(begins, np.arange(length), 0), axis=1)
    return Rows(
        tokens=random.integers(0, VOCAB, (rows, length + 1)).astype(np.int32),
        loss_mask=random.random((rows, length)) < 0.8,
        segment_ids=np.cumsum(begins, axis=1).astype(np.int32),
        positions=(np.arange(length) - starts).astype(np.int32),
    )


ROWS = rows_of_documents()
WHOLE = Rows(ROWS.tokens)


@pytest.mark.parametrize(
    ("config", "rows"),
    [(GPT2, WHOLE), (GPT2, ROWS), (LLAMA, ROWS)],
    ids=["gpt2", "gpt2 in segments", "llama with norms and biases in segments"],
)
def test_gradients_of_every_parameter_equal_finite_differences(config, rows):
    def loss(params):
        return batch_loss(params, rows, config, EXACT, 1e-2).lowered

    params = lively(implementation_of(config).init(jax.random.key(0), config, VOCAB))
    value = jax.jit(loss)
    gradients = jax.jit(jax.grad(loss))(params)
    leaves, structure = jax.tree.flatten(params)
    names, random = list(named_arrays(params)), np.random.default_rng(1)
    steepest = max(float(jnp.linalg.norm(each)) for each in jax.tree.leaves(gradients))
    for position, gradient in enumerate(jax.tree.leaves(gradients)):
        sideways = random.normal(size=gradient.shape)
        direction = sideways / np.linalg.norm(sideways)
        if (steepness := np.linalg.norm(gradient)) > 1e-4 * steepest:  # a bias of all keys alike changes nothing
            direction = direction + gradient / steepness

        def moved(distance, position=position, direction=direction):
            changed = [leaf + distance * direction if i == position else leaf for i, leaf in enumerate(leaves)]
            return float(value(jax.tree.unflatten(structure, changed)))

        measured = (moved(1e-2) - moved(-1e-2)) / 2e-2
        expected = float(np.sum(direction * gradient))
        assert measured == pytest.approx(expected, rel=2e-2, abs=2e-4 * steepest), names[position]


UNEQUAL = np.zeros((8, 16), bool)
"""In four pieces of two rows: 32 targets, 1, none, and 16."""
UNEQUAL[:2] = True
UNEQUAL[2, 5] = True
UNEQUAL[6, :] = True


def gradient_step(rows, pieces):
    """The parameters after a step that is the gradient itself, and what was measured."""
    plain = SgdConfig(lr=1.0, momentum=0.0, clip_norm=None)
    placement = make_placement(jax.devices()[:1], None, precision="float32")
    state = new_state(LLAMA, plain, vocab_size=VOCAB, seed=0, placement=placement)
    update = make_update(LLAMA, plain, state=state, placement=placement, z_loss=1e-2, grad_accumulation=pieces)
    after, measured = update(state, rows, np.float32(1.0))
    return named_arrays(jax.device_get(after.params)), measured


def test_pieces_of_which_unequal_parts_are_learned_add_up_to_the_whole_batch():
    rows = rows_of_documents(rows=8)._replace(loss_mask=UNEQUAL)
    whole, told = gradient_step(rows, 1)
    for pieces in (2, 4):
        params, measured = gradient_step(rows, pieces)
        assert int(measured.learned) == int(told.learned) == 49
        np.testing.assert_allclose(measured.loss, told.loss, rtol=1e-6)
        np.testing.assert_allclose(measured.gradient_norm, told.gradient_norm, rtol=1e-5)
        for name, array in params.items():
            np.testing.assert_allclose(array, whole[name], atol=2e-6, err_msg=name)
