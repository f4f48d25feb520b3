"""Which of our arrays is which tensor of Hugging Face's files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from marin.errors import ConfigurationError
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.llama_config import LlamaConfig
from marin.training.models.model import ModelConfig


@dataclass(frozen=True)
class Place:
    """``tensor`` holds the array; ``turned``: as ``[out, in]``; ``part``: it is that of so many parts, by columns."""

    tensor: str
    turned: bool = False
    part: tuple[int, int] | None = None


NO_PARAMETER = re.compile(r"(rotary_emb\.inv_freq|\bh\.\d+\.attn\.(masked_)?bias)$")
"""Tensors of older files that are no parameters, but follow from the config."""


HEAD = "lm_head.weight"


def places_of(config: ModelConfig) -> dict[str, Place]:
    """By the dotted name of each of our arrays. Raises ``ConfigurationError`` for models without a mapping."""
    if isinstance(config, LlamaConfig):
        return dict(_llama(config))
    if isinstance(config, Gpt2Config):
        return dict(_gpt2(config))
    raise ConfigurationError(f"{type(config).__name__} has no mapping to Hugging Face's tensors")


def is_left_out(tensor: str, config: ModelConfig) -> bool:
    """Whether a tensor of their files has nothing to say about a model of this kind."""
    tied = isinstance(config, Gpt2Config) or (isinstance(config, LlamaConfig) and config.tie_embeddings)
    return bool(NO_PARAMETER.search(tensor)) or (tied and tensor == HEAD)


def _llama(config: LlamaConfig) -> Iterator[tuple[str, Place]]:
    yield "embed_tokens", Place("model.embed_tokens.weight")
    for number in range(config.num_layers):
        ours, theirs = f"layers.{number}", f"model.layers.{number}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{ours}.{norm}", Place(f"{theirs}.{norm}.weight")
        for name in ("q", "k", "v", "o"):
            yield f"{ours}.self_attn.{name}_proj", Place(f"{theirs}.self_attn.{name}_proj.weight", turned=True)
        for name in ("q", "k", "v") if config.qkv_bias else ():
            yield f"{ours}.self_attn.{name}_bias", Place(f"{theirs}.self_attn.{name}_proj.bias")
        for name in ("q_norm", "k_norm") if config.qk_norm else ():
            yield f"{ours}.self_attn.{name}", Place(f"{theirs}.self_attn.{name}.weight")
        for name in ("gate_proj", "up_proj", "down_proj"):
            yield f"{ours}.mlp.{name}", Place(f"{theirs}.mlp.{name}.weight", turned=True)
    yield "norm", Place("model.norm.weight")
    if not config.tie_embeddings:
        yield "lm_head", Place(HEAD, turned=True)


def _gpt2(config: Gpt2Config) -> Iterator[tuple[str, Place]]:
    yield "wte", Place("transformer.wte.weight")
    yield "wpe", Place("transformer.wpe.weight")
    for number in range(config.num_layers):
        ours, theirs = f"layers.{number}", f"transformer.h.{number}"
        for norm in ("ln_1", "ln_2"):
            yield f"{ours}.{norm}", Place(f"{theirs}.{norm}.weight")
            yield f"{ours}.{norm}_bias", Place(f"{theirs}.{norm}.bias")
        for part, name in enumerate("qkv"):
            yield f"{ours}.attn.{name}_proj", Place(f"{theirs}.attn.c_attn.weight", part=(part, 3))
            yield f"{ours}.attn.{name}_bias", Place(f"{theirs}.attn.c_attn.bias", part=(part, 3))
        yield f"{ours}.attn.o_proj", Place(f"{theirs}.attn.c_proj.weight")
        yield f"{ours}.attn.o_bias", Place(f"{theirs}.attn.c_proj.bias")
        for name in ("c_fc", "c_proj"):
            yield f"{ours}.mlp.{name}", Place(f"{theirs}.mlp.{name}.weight")
            yield f"{ours}.mlp.{name}_bias", Place(f"{theirs}.mlp.{name}.bias")
    yield "ln_f", Place("transformer.ln_f.weight")
    yield "ln_f_bias", Place("transformer.ln_f.bias")
