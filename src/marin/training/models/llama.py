"""The Llama family as pure functions over a nested dictionary of arrays.

Names follow the field's usual ones (``layers[i].self_attn.q_proj``); matrices are stored as ``[in, out]``.
"""

from __future__ import annotations

import math
from typing import Final

import jax
import jax.numpy as jnp

from marin.training.models.attention import attention
from marin.training.models.compute import Compute
from marin.training.models.dot import dot, dots
from marin.training.models.implementation import Params
from marin.training.models.inputs import Inputs, positions_of
from marin.training.models.layers import apply_layers
from marin.training.models.llama_config import LlamaConfig
from marin.training.models.rope import rope_table, rotate

Array = jax.Array

PARTITION: Final[dict[str, tuple[str | None, ...]]] = {
    "embed_tokens": ("vocab", "embed"),
    "lm_head": ("embed", "vocab"),
    "q_proj": ("embed", "heads"),
    "k_proj": ("embed", "heads"),
    "v_proj": ("embed", "heads"),
    "q_bias": ("heads",),
    "k_bias": ("heads",),
    "v_bias": ("heads",),
    "o_proj": ("heads", "embed"),
    "gate_proj": ("embed", "mlp"),
    "up_proj": ("embed", "mlp"),
    "down_proj": ("mlp", "embed"),
}

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
    params: Params = {
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
    if config.qkv_bias:
        sizes = {"q_bias": queries, "k_bias": shared, "v_bias": shared}
        params["self_attn"] |= {name: jnp.zeros(size) for name, size in sizes.items()}
    if config.qk_norm:
        params["self_attn"] |= {name: jnp.ones(config.head_dim) for name in ("q_norm", "k_norm")}
    return params


def _matrix(key: Array, fan_in: int, fan_out: int) -> Array:
    return jax.random.normal(key, (fan_in, fan_out)) / math.sqrt(fan_in)


def forward(params: Params, inputs: Inputs, config: LlamaConfig, compute: Compute) -> Array:
    """Logits of the next token, float32: ``[batch, seq] -> [batch, seq, vocab]``."""
    return dot(hidden_states(params, inputs, config, compute), head(params), compute.dtype)


def head(params: Params) -> Array:
    """The matrix from hidden states to logits, ``[hidden, vocab]``."""
    return params["lm_head"] if "lm_head" in params else params["embed_tokens"].T


def hidden_states(params: Params, inputs: Inputs, config: LlamaConfig, compute: Compute) -> Array:
    """What the head turns into logits, float32: ``[batch, seq] -> [batch, seq, hidden]``."""
    rotation = rope_table(positions_of(inputs), config.head_dim, config.rope_theta, config.rope_scaling)

    def layer(params: Params, x: Array) -> Array:
        normed = rms_norm(x, params["input_layernorm"], config.norm_eps)
        x = x + _attention(params["self_attn"], normed, inputs.segment_ids, config, rotation, compute)
        normed = rms_norm(x, params["post_attention_layernorm"], config.norm_eps)
        return compute.activations(x + _mlp(params["mlp"], normed, compute), "batch", None, None)

    x = compute.activations(compute.table(params["embed_tokens"], "vocab")[inputs.tokens], "batch", None, None)
    x = apply_layers(layer, x, params["layers"], compute)
    return rms_norm(x, params["norm"], config.norm_eps)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """``x`` of any shape over the root mean square of its last axis, times ``weight``."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def _attention(
    params: Params,
    x: Array,
    segment_ids: Array | None,
    config: LlamaConfig,
    rotation: tuple[Array, Array],
    compute: Compute,
) -> Array:
    batch, seq, _ = x.shape
    projected = dots(x, [params["q_proj"], params["k_proj"], params["v_proj"]], compute)
    if config.qkv_bias:
        biases = (params["q_bias"], params["k_bias"], params["v_bias"])
        projected = [each + bias for each, bias in zip(projected, biases, strict=True)]
    q, k, v = (
        compute.activations(each.reshape(batch, seq, -1, config.head_dim), "batch", None, "heads", None)
        for each in projected
    )
    if config.qk_norm:
        q, k = rms_norm(q, params["q_norm"], config.norm_eps), rms_norm(k, params["k_norm"], config.norm_eps)
    mixed = attention(rotate(q, rotation), rotate(k, rotation), v, segment_ids=segment_ids, compute=compute)
    return dot(mixed.reshape(batch, seq, -1), params["o_proj"], compute.dtype)


def _mlp(params: Params, x: Array, compute: Compute) -> Array:
    gate, up = dots(x, [params["gate_proj"], params["up_proj"]], compute)
    inner = compute.activations(jax.nn.silu(gate) * up, "batch", None, "mlp")
    return dot(inner, params["down_proj"], compute.dtype)
