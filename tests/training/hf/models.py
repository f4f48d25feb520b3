"""Small models of every kind that can be written and read, with parameters far from their beginning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from marin.processing.tokenize.tokenizers import parse_tokenizer
from marin.training.arrays import NamedArrays, load_arrays, named_arrays
from marin.training.checkpoint import PARAMS_FILE, Checkpoint
from marin.training.hf.hf_model import HfModelConfig
from marin.training.hf.import_model import import_model
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.implementation import implementation_of
from marin.training.models.llama_config import LlamaConfig
from marin.training.models.rope_scaling import linear_scaling, llama3_scaling

VOCAB = 300

_SIZES: dict[str, Any] = {
    "hidden_dim": 64,
    "intermediate_dim": 96,
    "num_layers": 2,
    "num_heads": 4,
    "max_seq_len": 256,
}
_GROUPED = {**_SIZES, "num_kv_heads": 2}
MODELS = {
    "multi-head": LlamaConfig(**_SIZES),
    "grouped-query": LlamaConfig(**_GROUPED, norm_eps=1e-6),
    "tied": LlamaConfig(**_GROUPED, tie_embeddings=True),
    "llama3 rope": LlamaConfig(
        **_GROUPED, rope_theta=500.0, rope_scaling=llama3_scaling(factor=8.0, original_max_seq_len=64)
    ),
    "linear rope": LlamaConfig(**_GROUPED, rope_scaling=linear_scaling(4.0)),
    "wide heads": LlamaConfig(**_GROUPED, head_size=24),
    "qwen 2": LlamaConfig(**_GROUPED, qkv_bias=True, rope_theta=1_000_000.0),
    "qwen 3": LlamaConfig(**_GROUPED, qk_norm=True, head_size=24, tie_embeddings=True),
    "gpt-2": Gpt2Config(hidden_dim=64, num_layers=2, num_heads=4, max_seq_len=256),
    "gpt-2, narrow": Gpt2Config(hidden_dim=64, num_layers=2, num_heads=4, max_seq_len=256, intermediate_dim=80),
}


def lively_params(config: Any) -> Any:
    """Norms that are not 1, biases that are not 0, logits that are not near 0."""
    params = implementation_of(config).init(jax.random.key(0), config, VOCAB)
    random = np.random.default_rng(7)
    params = jax.tree.map(lambda a: a + np.float32(0.1) * random.standard_normal(a.shape, np.float32), params)
    head = "lm_head" if "lm_head" in params else "wte" if "wte" in params else "embed_tokens"
    return {**params, head: 5 * params[head]}


def imported(path: Path, out: Path, *, tokenizer: str | None = "bytes") -> Checkpoint:
    out.mkdir(parents=True, exist_ok=True)
    spec = None if tokenizer is None else parse_tokenizer(tokenizer)
    config = HfModelConfig(output_path=str(out), hf_id=None, revision=None, path=str(path), tokenizer=spec)
    return import_model(config)


def arrays_of(checkpoint: Checkpoint) -> NamedArrays:
    return load_arrays(str(Path(checkpoint.path, PARAMS_FILE)))


def same_bits(one: NamedArrays, other: NamedArrays) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def named(params: Any) -> NamedArrays:
    return named_arrays(params)
