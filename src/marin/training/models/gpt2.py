"""GPT-2 as pure functions over a nested dictionary of arrays.

Queries, keys and values have a matrix each, where Hugging Face's files have one for all; matrices are ``[in, out]``.
"""

from __future__ import annotations

import math
from typing import Final

import jax
import jax.numpy as jnp

from marin.training.models.attention import attention
from marin.training.models.compute import Compute
from marin.training.models.dot import dot, dots
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.implementation import Params
from marin.training.models.inputs import Inputs, positions_of
from marin.training.models.layers import apply_layers

Array = jax.Array

PARTITION: Final[dict[str, tuple[str | None, ...]]] = {
    "wte": ("vocab", "embed"),
    "wpe": (None, "embed"),
    "q_proj": ("embed", "heads"),
    "k_proj": ("embed", "heads"),
    "v_proj": ("embed", "heads"),
    "q_bias": ("heads",),
    "k_bias": ("heads",),
    "v_bias": ("heads",),
    "o_proj": ("heads", "embed"),
    "c_fc": ("embed", "mlp"),
    "c_fc_bias": ("mlp",),
    "c_proj": ("mlp", "embed"),
}

STD = 0.02
"""Standard deviation of new matrices, GPT-2's own."""


def init(key: Array, config: Gpt2Config, vocab_size: int) -> Params:
    """New float32 parameters. The same key gives the same bits on any number of devices."""
    keys = jax.random.split(key, config.num_layers + 2)
    return {
        "wte": STD * jax.random.normal(keys[0], (vocab_size, config.hidden_dim)),
        "wpe": STD / 2 * jax.random.normal(keys[1], (config.max_seq_len, config.hidden_dim)),
        "layers": [_init_layer(layer_key, config) for layer_key in keys[2:]],
        "ln_f": jnp.ones(config.hidden_dim),
        "ln_f_bias": jnp.zeros(config.hidden_dim),
    }


def _init_layer(key: Array, config: Gpt2Config) -> Params:
    hidden, inner = config.hidden_dim, config.inner_dim
    keys = iter(jax.random.split(key, 6))
    # What is added to the residual stream starts smaller, so that its size does not grow with the number of layers.
    into_residual = 1 / math.sqrt(2 * config.num_layers)

    def matrix(fan_in: int, fan_out: int) -> Array:
        return STD * jax.random.normal(next(keys), (fan_in, fan_out))

    return {
        "ln_1": jnp.ones(hidden),
        "ln_1_bias": jnp.zeros(hidden),
        "attn": {
            **{f"{name}_proj": matrix(hidden, hidden) for name in ("q", "k", "v")},
            **{f"{name}_bias": jnp.zeros(hidden) for name in ("q", "k", "v")},
            "o_proj": into_residual * matrix(hidden, hidden),
            "o_bias": jnp.zeros(hidden),
        },
        "ln_2": jnp.ones(hidden),
        "ln_2_bias": jnp.zeros(hidden),
        "mlp": {
            "c_fc": matrix(hidden, inner),
            "c_fc_bias": jnp.zeros(inner),
            "c_proj": into_residual * matrix(inner, hidden),
            "c_proj_bias": jnp.zeros(hidden),
        },
    }


def forward(params: Params, inputs: Inputs, config: Gpt2Config, compute: Compute) -> Array:
    """Logits of the next token, float32: ``[batch, seq] -> [batch, seq, vocab]``."""
    return dot(hidden_states(params, inputs, config, compute), head(params), compute.dtype)


def head(params: Params) -> Array:
    """The matrix from hidden states to logits, ``[hidden, vocab]``: the embedding, turned."""
    return params["wte"].T


def hidden_states(params: Params, inputs: Inputs, config: Gpt2Config, compute: Compute) -> Array:
    """What the head turns into logits, float32: ``[batch, seq] -> [batch, seq, hidden]``."""

    def layer(params: Params, x: Array) -> Array:
        normed = layer_norm(x, params["ln_1"], params["ln_1_bias"], config.norm_eps)
        x = x + _attention(params["attn"], normed, inputs.segment_ids, config, compute)
        normed = layer_norm(x, params["ln_2"], params["ln_2_bias"], config.norm_eps)
        return compute.activations(x + _mlp(params["mlp"], normed, compute), "batch", None, None)

    x = compute.table(params["wte"], "vocab")[inputs.tokens] + compute.table(params["wpe"], None)[positions_of(inputs)]
    x = apply_layers(layer, compute.activations(x, "batch", None, None), params["layers"], compute)
    return layer_norm(x, params["ln_f"], params["ln_f_bias"], config.norm_eps)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """``x`` of any shape, its last axis brought to mean 0 and variance 1, times ``weight`` plus ``bias``."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + eps) * weight + bias


def _attention(params: Params, x: Array, segment_ids: Array | None, config: Gpt2Config, compute: Compute) -> Array:
    batch, seq, _ = x.shape
    projected = dots(x, [params["q_proj"], params["k_proj"], params["v_proj"]], compute)
    biases = (params["q_bias"], params["k_bias"], params["v_bias"])
    q, k, v = (
        compute.activations((each + bias).reshape(batch, seq, -1, config.head_dim), "batch", None, "heads", None)
        for each, bias in zip(projected, biases, strict=True)
    )
    mixed = attention(q, k, v, segment_ids=segment_ids, compute=compute)
    return dot(mixed.reshape(batch, seq, -1), params["o_proj"], compute.dtype) + params["o_bias"]


def _mlp(params: Params, x: Array, compute: Compute) -> Array:
    inner = dot(x, params["c_fc"], compute.dtype) + params["c_fc_bias"]
    inner = compute.activations(jax.nn.gelu(inner, approximate=True), "batch", None, "mlp")
    return dot(inner, params["c_proj"], compute.dtype) + params["c_proj_bias"]
