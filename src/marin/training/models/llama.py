"""The Llama family as pure functions over a nested dictionary of arrays.

Names follow the field's usual ones (``layers[i].self_attn.q_proj``); matrices are stored as ``[in, out]``. Layers are a
list and are unrolled: on a CPU that is no slower than a scan, and weight decay can look at the rank of each array.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from marin.training.models.attention import causal_attention
from marin.training.models.dot import dot
from marin.training.models.llama_config import LlamaConfig

Array = jax.Array
Params = dict[str, Any]

EMBEDDING_STD = 1.0
"""Standard deviation of new embeddings: as large as what the layers add to them, so that tokens can be told apart from
the first step on. Small models learn several times faster with it than with the usual 0.02."""

HEAD_STD = 0.02
"""Standard deviation of a new head (and of embeddings that are the head too): small, so that the first loss is close to
ln(vocabulary)."""


def init(key: Array, config: LlamaConfig, vocab_size: int) -> Params:
    """New float32 parameters. The same key gives the same bits on any number of devices."""
    keys = jax.random.split(key, config.num_layers + 2)
    embedding_std = HEAD_STD if config.tie_embeddings else EMBEDDING_STD
    params: Params = {
        "embed_tokens": embedding_std * jax.random.normal(keys[0], (vocab_size, config.hidden_dim)),
        "layers": [_init_layer(layer_key, config) for layer_key in keys[2:]],
        "norm": jnp.ones(config.hidden_dim),
    }
    if not config.tie_embeddings:
        params["lm_head"] = HEAD_STD * jax.random.normal(keys[1], (config.hidden_dim, vocab_size))
    return params


def _init_layer(key: Array, config: LlamaConfig) -> Params:
    hidden, inner = config.hidden_dim, config.intermediate_dim
    queries, shared = config.num_heads * config.head_dim, config.kv_heads * config.head_dim
    keys = iter(jax.random.split(key, 7))
    # What is added to the residual stream starts smaller, so that its size does not grow with the number of layers.
    into_residual = 1 / math.sqrt(2 * config.num_layers)
    return {
        "input_layernorm": jnp.ones(hidden),
        "self_attn": {
            "q_proj": _matrix(next(keys), hidden, queries),
            "k_proj": _matrix(next(keys), hidden, shared),
            "v_proj": _matrix(next(keys), hidden, shared),
            "o_proj": into_residual * _matrix(next(keys), queries, hidden),
        },
        "post_attention_layernorm": jnp.ones(hidden),
        "mlp": {
            "gate_proj": _matrix(next(keys), hidden, inner),
            "up_proj": _matrix(next(keys), hidden, inner),
            "down_proj": into_residual * _matrix(next(keys), inner, hidden),
        },
    }


def _matrix(key: Array, fan_in: int, fan_out: int) -> Array:
    return jax.random.normal(key, (fan_in, fan_out)) / math.sqrt(fan_in)


def forward(params: Params, tokens: Array, config: LlamaConfig, dtype: jnp.dtype) -> Array:
    """Logits of the next token, float32: ``[batch, seq] -> [batch, seq, vocab]``."""
    return dot(hidden_states(params, tokens, config, dtype), head(params), dtype)


def head(params: Params) -> Array:
    """The matrix from hidden states to logits, ``[hidden, vocab]``."""
    return params["lm_head"] if "lm_head" in params else params["embed_tokens"].T


def hidden_states(params: Params, tokens: Array, config: LlamaConfig, dtype: jnp.dtype) -> Array:
    """What the head turns into logits, float32: ``[batch, seq] -> [batch, seq, hidden]``."""
    x = params["embed_tokens"][tokens]
    rotation = rope_table(tokens.shape[1], config.head_dim, config.rope_theta)
    for layer in params["layers"]:
        x = x + _attention(
            layer["self_attn"], rms_norm(x, layer["input_layernorm"], config.norm_eps), config, rotation, dtype
        )
        x = x + _mlp(layer["mlp"], rms_norm(x, layer["post_attention_layernorm"], config.norm_eps), dtype)
    return rms_norm(x, params["norm"], config.norm_eps)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """``x`` of any shape over the root mean square of its last axis, times ``weight``."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def _attention(params: Params, x: Array, config: LlamaConfig, rotation: tuple[Array, Array], dtype: jnp.dtype) -> Array:
    batch, seq, _ = x.shape
    # One product for queries, keys and values: fewer and larger products are faster.
    joined = dot(x, jnp.concatenate([params["q_proj"], params["k_proj"], params["v_proj"]], axis=1), dtype)
    heads = joined.reshape(batch, seq, config.num_heads + 2 * config.kv_heads, config.head_dim)
    q, k, v = jnp.split(heads, [config.num_heads, config.num_heads + config.kv_heads], axis=2)
    mixed = causal_attention(rotate(q, rotation), rotate(k, rotation), v, dtype)
    return dot(mixed.reshape(batch, seq, -1), params["o_proj"], dtype)


def _mlp(params: Params, x: Array, dtype: jnp.dtype) -> Array:
    joined = dot(x, jnp.concatenate([params["gate_proj"], params["up_proj"]], axis=1), dtype)
    gate, up = jnp.split(joined, 2, axis=-1)
    return dot(jax.nn.silu(gate) * up, params["down_proj"], dtype)


def rope_table(seq: int, head_dim: int, theta: float) -> tuple[Array, Array]:
    """Cosines and sines of the rotary angles, ``[seq, 1, head_dim / 2]`` each."""
    frequencies = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angles = jnp.arange(seq, dtype=jnp.float32)[:, None, None] * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: Array, rotation: tuple[Array, Array]) -> Array:
    """Turn each head by its position. Number ``i`` is paired with ``i + head_dim / 2``, as in Hugging Face's files."""
    cos, sin = rotation
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
