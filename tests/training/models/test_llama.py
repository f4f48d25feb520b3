"""The model against a slow reference in plain numpy and float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.training.arrays import named_arrays
from marin.training.models import attention, llama
from marin.training.models.llama_config import LlamaConfig

VOCAB = 50
FORWARD = jax.jit(llama.forward, static_argnums=(2, 3))


def config(**changes):
    sizes = {"hidden_dim": 32, "intermediate_dim": 48, "num_layers": 2, "num_heads": 4, "max_seq_len": 256}
    return LlamaConfig(**{**sizes, **changes})


def reference_logits(params, tokens, cfg):
    """One token, one head, one position after the other."""
    p = jax.tree.map(lambda array: np.asarray(array, np.float64), params)

    def norm(x, weight):
        return x / math.sqrt(np.mean(x**2) + cfg.norm_eps) * weight

    def turn(x, position):
        half = cfg.head_dim // 2
        turned = np.empty_like(x)
        for i in range(half):
            angle = position * cfg.rope_theta ** (-2 * i / cfg.head_dim)
            turned[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
            turned[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
        return turned

    stream = [p["embed_tokens"][token] for token in tokens]
    for layer in p["layers"]:
        a, m = layer["self_attn"], layer["mlp"]
        normed = [norm(x, layer["input_layernorm"]) for x in stream]
        q = [[turn(h, t) for h in np.split(x @ a["q_proj"], cfg.num_heads)] for t, x in enumerate(normed)]
        k = [[turn(h, t) for h in np.split(x @ a["k_proj"], cfg.kv_heads)] for t, x in enumerate(normed)]
        v = [np.split(x @ a["v_proj"], cfg.kv_heads) for x in normed]
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
    [config(), config(num_kv_heads=2), config(num_kv_heads=1, tie_embeddings=True), config(rope_theta=500.0)],
    ids=["multi-head", "grouped-query", "one key head, tied", "another theta"],
)
def test_logits_equal_the_reference(cfg):
    params = lively(llama.init(jax.random.key(0), cfg, VOCAB))
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, 70))  # more than one block of queries
    with jax.default_matmul_precision("highest"):
        logits = FORWARD(params, tokens, cfg, jnp.dtype("float32"))
    expected = np.stack([reference_logits(params, row, cfg) for row in tokens])
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits, expected, atol=5e-5)


def test_bfloat16_is_close_to_float32():
    cfg = config(num_kv_heads=2)
    params = llama.init(jax.random.key(0), cfg, VOCAB)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, VOCAB, (2, 70)))
    exact = FORWARD(params, tokens, cfg, jnp.dtype("float32"))
    rough = FORWARD(params, tokens, cfg, jnp.dtype("bfloat16"))
    assert rough.dtype == jnp.float32
    assert 0 < np.abs(exact - rough).max() < 0.02


def test_a_token_does_not_see_those_after_it():
    cfg = config()
    params = llama.init(jax.random.key(0), cfg, VOCAB)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, 130))
    changed = tokens.copy()
    changed[0, 65] = (changed[0, 65] + 1) % VOCAB
    before, after = (FORWARD(params, jnp.asarray(t), cfg, jnp.dtype("float32"))[0] for t in (tokens, changed))
    np.testing.assert_array_equal(before[:65], after[:65])
    assert np.abs(before[65:] - after[65:]).max(axis=1).min() > 0


@pytest.mark.parametrize("seq", [1, 63, 64, 65, 200])
def test_blocks_of_queries_give_what_jax_gives_for_the_whole(seq):
    shapes = {"q": (2, seq, 4, 16), "k": (2, seq, 2, 16), "v": (2, seq, 2, 16)}
    random = np.random.default_rng(seq)
    q, k, v = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes.values())
    ours = attention.causal_attention(q, k, v, jnp.dtype("float32"))
    np.testing.assert_allclose(ours, jax.nn.dot_product_attention(q, k, v, is_causal=True), atol=2e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_as_many_parameters_are_made_as_are_counted(tied):
    cfg = config(num_kv_heads=2, tie_embeddings=tied)
    params = llama.init(jax.random.key(0), cfg, VOCAB)
    assert sum(array.size for array in jax.tree.leaves(params)) == cfg.num_params(VOCAB)


def test_the_same_seed_gives_the_same_parameters_and_another_seed_others():
    first, again, other = (named_arrays(llama.init(jax.random.key(seed), config(), VOCAB)) for seed in (1, 1, 2))
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["layers.1.mlp.up_proj"] != other["layers.1.mlp.up_proj"]).any()
    assert (first["layers.0.mlp.up_proj"] != first["layers.1.mlp.up_proj"]).any()
