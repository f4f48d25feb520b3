"""The model against a slow reference in plain numpy and float64."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training.arrays import named_arrays
from marin.training.models import attention, llama
from marin.training.models.compute import Compute
from marin.training.models.inputs import Inputs
from marin.training.models.llama_config import LlamaConfig
from marin.training.models.rope_scaling import linear_scaling, llama3_scaling

VOCAB = 50


@functools.partial(jax.jit, static_argnums=(2, 3))
def logits_of(params, tokens, cfg, dtype):
    return llama.forward(params, Inputs(tokens), cfg, Compute(dtype=dtype))


def config(**changes):
    sizes = {"hidden_dim": 32, "intermediate_dim": 48, "num_layers": 2, "num_heads": 4, "max_seq_len": 256}
    return LlamaConfig(**{**sizes, **changes})


def frequency(cfg, i):
    plain, scaling = cfg.rope_theta ** (-2 * i / cfg.head_dim), cfg.rope_scaling
    if scaling is None or scaling.kind == "linear":
        return plain / (scaling.factor if scaling else 1)
    turns = scaling.original_max_seq_len * plain / (2 * math.pi)
    if turns < scaling.low_freq_factor:
        return plain / scaling.factor
    if turns > scaling.high_freq_factor:
        return plain
    share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    return (1 - share) * plain / scaling.factor + share * plain


def reference_logits(params, tokens, cfg):
    """One token, one head, one position after the other."""
    p = jax.tree.map(lambda array: np.asarray(array, np.float64), params)

    def norm(x, weight):
        return x / math.sqrt(np.mean(x**2) + cfg.norm_eps) * weight

    def turn(x, position):
        half = cfg.head_dim // 2
        turned = np.empty_like(x)
        for i in range(half):
            angle = position * frequency(cfg, i)
            turned[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            turned[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return turned

    def projected(x, layer, name, head_count):
        bias = layer[f"{name}_bias"] if cfg.qkv_bias else 0
        heads = np.split(x @ layer[f"{name}_proj"] + bias, head_count)
        return [norm(head, layer[f"{name}_norm"]) for head in heads] if cfg.qk_norm and name != "v" else heads

    stream = [p["embed_tokens"][token] for token in tokens]
    for layer in p["layers"]:
        a, m = layer["self_attn"], layer["mlp"]
        normed = [norm(x, layer["input_layernorm"]) for x in stream]
        q = [[turn(h, t) for h in projected(x, a, "q", cfg.num_heads)] for t, x in enumerate(normed)]
        k = [[turn(h, t) for h in projected(x, a, "k", cfg.kv_heads)] for t, x in enumerate(normed)]
        v = [projected(x, a, "v", cfg.kv_heads) for x in normed]
        for t in range(len(stream)):
            mixed = []
            for head in range(cfg.num_heads):
                shared = head // (cfg.num_heads // cfg.kv_heads)
                scores = np.array([q[t][head] @ k[s][shared] / math.sqrt(cfg.head_dim) for s in range(t + 1)])
                weights = np.exp(scores - scores.max())
                mixed.append(sum(w * v[s][shared] for s, w in enumerate(weights / weights.sum())))
            stream[t] = stream[t] + np.concatenate(mixed) @ a["o_proj"]
            x = norm(stream[t], layer["post_attention_layernorm"])
            gate = x @ m["gate_proj"]
            stream[t] = stream[t] + (gate / (1 + np.exp(-gate)) * (x @ m["up_proj"])) @ m["down_proj"]
    head = p["embed_tokens"].T if cfg.tie_embeddings else p["lm_head"]
    return np.stack([norm(x, p["norm"]) @ head for x in stream])


def lively(params):
    """Parameters far from their beginning: norms that are not 1, logits that are not near 0."""
    keys = iter(jax.random.split(jax.random.key(7), len(jax.tree.leaves(params))))
    return jax.tree.map(lambda array: array + 0.1 * jax.random.normal(next(keys), array.shape), params)


@pytest.mark.parametrize(
    "cfg",
    [
        config(),
        config(num_kv_heads=2),
        config(num_kv_heads=1, tie_embeddings=True),
        config(rope_theta=500.0),
        config(rope_scaling=linear_scaling(4.0)),
        config(rope_scaling=llama3_scaling(factor=8.0, original_max_seq_len=32), rope_theta=100.0),
        config(num_kv_heads=2, qkv_bias=True),
        config(num_kv_heads=2, qk_norm=True, head_size=12),
    ],
    ids=[
        "multi-head",
        "grouped-query",
        "one key head, tied",
        "another theta",
        "linear scaling",
        "llama3 scaling",
        "biases",
        "normed heads of another size",
    ],
)
def test_logits_equal_the_reference(cfg):
    params = lively(llama.init(jax.random.key(0), cfg, VOCAB))
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, 70))  # more than one block of queries
    with jax.default_matmul_precision("highest"):
        logits = logits_of(params, tokens, cfg, jnp.dtype("float32"))
    expected = np.stack([reference_logits(params, row, cfg) for row in tokens])
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits, expected, atol=5e-5)


def test_bfloat16_is_close_to_float32():
    cfg = config(num_kv_heads=2)
    params = llama.init(jax.random.key(0), cfg, VOCAB)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, VOCAB, (2, 70)))
    exact = logits_of(params, tokens, cfg, jnp.dtype("float32"))
    rough = logits_of(params, tokens, cfg, jnp.dtype("bfloat16"))
    assert rough.dtype == jnp.float32
    assert 0 < np.abs(exact - rough).max() < 0.02


def test_a_token_does_not_see_those_after_it():
    cfg = config()
    params = llama.init(jax.random.key(0), cfg, VOCAB)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, 130))
    changed = tokens.copy()
    changed[0, 65] = (changed[0, 65] + 1) % VOCAB
    before, after = (logits_of(params, jnp.asarray(t), cfg, jnp.dtype("float32"))[0] for t in (tokens, changed))
    np.testing.assert_array_equal(before[:65], after[:65])
    assert np.abs(before[65:] - after[65:]).max(axis=1).min() > 0


@pytest.mark.parametrize("seq", [1, 63, 64, 65, 200])
def test_blocks_of_queries_give_what_jax_gives_for_the_whole(seq):
    shapes = {"q": (2, seq, 4, 16), "k": (2, seq, 2, 16), "v": (2, seq, 2, 16)}
    random = np.random.default_rng(seq)
    q, k, v = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes.values())
    ours = attention.attention(q, k, v, segment_ids=None, compute=Compute(dtype=jnp.dtype("float32")))
    np.testing.assert_allclose(ours, jax.nn.dot_product_attention(q, k, v, is_causal=True), atol=2e-6)


def test_the_same_seed_gives_the_same_parameters_and_another_seed_others():
    first, again, other = (named_arrays(llama.init(jax.random.key(seed), config(), VOCAB)) for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["layers.1.mlp.up_proj"] != other["layers.1.mlp.up_proj"]).any()
    assert (first["layers.0.mlp.up_proj"] != first["layers.1.mlp.up_proj"]).any()
