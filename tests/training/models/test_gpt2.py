"""GPT-2's equations, against the same written plainly in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.errors import ConfigurationError
from marin.training.models import gpt2
from marin.training.models.compute import Compute
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.inputs import Inputs
from tests.training.models.test_llama import lively

VOCAB = 50
CONFIG = Gpt2Config(hidden_dim=32, num_layers=2, num_heads=4, max_seq_len=128)


def reference_logits(params, tokens, cfg):
    p = jax.tree.map(lambda array: np.asarray(array, np.float64), params)

    def norm(x, weight, bias):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + cfg.norm_eps) * weight + bias

    x = p["wte"][tokens] + p["wpe"][: len(tokens)]
    future = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for layer in p["layers"]:
        a, m = layer["attn"], layer["mlp"]
        normed = norm(x, layer["ln_1"], layer["ln_1_bias"])
        heads = []
        q, k, v = (np.split(normed @ a[f"{n}_proj"] + a[f"{n}_bias"], cfg.num_heads, axis=1) for n in "qkv")
        for head in range(cfg.num_heads):
            weights = np.exp(q[head] @ k[head].T / math.sqrt(cfg.head_dim) + future)
            heads.append(weights / weights.sum(1, keepdims=True) @ v[head])
        x = x + np.concatenate(heads, axis=1) @ a["o_proj"] + a["o_bias"]
        inner = norm(x, layer["ln_2"], layer["ln_2_bias"]) @ m["c_fc"] + m["c_fc_bias"]
        inner = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        x = x + inner @ m["c_proj"] + m["c_proj_bias"]
    return norm(x, p["ln_f"], p["ln_f_bias"]) @ p["wte"].T


@jax.jit
def logits_of(params, inputs):
    return gpt2.forward(params, inputs, CONFIG, Compute(dtype=jnp.dtype("float32")))


def test_logits_equal_the_reference():
    params = lively(gpt2.init(jax.random.key(0), CONFIG, VOCAB))
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, 70))
    expected = reference_logits(params, tokens[0], CONFIG)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits_of(params, Inputs(tokens))[0], expected, atol=5e-5)


def test_positions_are_those_that_are_given():
    params = lively(gpt2.init(jax.random.key(0), CONFIG, VOCAB))
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, 70))
    place = np.arange(70)
    counted, begun_anew = (
        logits_of(params, Inputs(tokens, positions=jnp.asarray(positions[None]), segment_ids=jnp.asarray(ids[None])))
        for positions, ids in ((place, place * 0), (place % 35, place // 35))
    )
    alone = logits_of(params, Inputs(tokens[:, 35:]))
    np.testing.assert_allclose(begun_anew[0, 35:], alone[0], atol=2e-5)
    assert np.abs(counted[0, 35:] - alone[0]).max() > 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_dim": 30}, r"hidden_dim=30 can't be split into num_heads=4 heads: choose a multiple"),
        ({"num_layers": 0}, r"num_layers=0 is not a positive whole number"),
        ({"intermediate_dim": 1.5}, r"intermediate_dim=1.5 is not a positive whole number"),
        ({"norm_eps": 0.0}, r"norm_eps=0.0 is not a positive number"),
    ],
)
def test_sizes_that_do_not_fit_are_told_at_construction(change, message):
    with pytest.raises(ConfigurationError, match=message):
        Gpt2Config(**{"hidden_dim": 32, "num_layers": 2, "num_heads": 4, "max_seq_len": 16, **change})
