"""A model of one's own, without attention: a config that counts, and the three functions that it names.

Each layer adds up what the last few positions hold, each number with weights of its own, and passes that through a
small network. The text is the source of a package of Python's standard library. Half a minute.
"""

import math
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp

from marin.experiment.data import files, tokenized, train_lm
from marin.experiment.main import experiment_main
from marin.training.models.dot import dot
from marin.training.models.layers import apply_layers
from marin.training.optimizers import AdamConfig


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig:
    """Its fields are part of the recipe, as those of ``LlamaConfig`` are."""

    # The module with the functions, here this file. In a module of its own it keeps jax out of this script.
    implementation: ClassVar[str] = Path(__file__).stem

    hidden_dim: int
    num_layers: int
    reach: int
    max_seq_len: int

    def num_params(self, vocab_size):
        return 2 * vocab_size * self.hidden_dim + self.num_layers * (self._matrices + self.reach * self.hidden_dim)

    def flops_per_token(self, vocab_size, seq_len):
        """A multiply-add is two; the backward pass costs twice the forward pass."""
        return 3 * 2 * (self.num_layers * self._matrices + vocab_size * self.hidden_dim)

    @property
    def _matrices(self):
        return 8 * self.hidden_dim**2


def init(key, config, vocab_size):
    """Matrices as [in, out]; the layers are a list of equal trees, under this name."""
    hidden, inner = config.hidden_dim, 4 * config.hidden_dim
    keys = iter(jax.random.split(key, 2 + 2 * config.num_layers))
    return {
        "embed": jax.random.normal(next(keys), (vocab_size, hidden)),
        "head": 0.02 * jax.random.normal(next(keys), (hidden, vocab_size)),
        "layers": [
            {
                "weights": jnp.full((config.reach, hidden), 1 / config.reach),
                "up": jax.random.normal(next(keys), (hidden, inner)) / math.sqrt(hidden),
                "down": jax.random.normal(next(keys), (inner, hidden)) / math.sqrt(inner),
            }
            for _ in range(config.num_layers)
        ],
    }


def hidden_states(params, inputs, config, compute):
    """What the head turns into logits. ``compute`` says in which precision, and how the arrays lie on devices."""
    ids = jnp.zeros_like(inputs.tokens) if inputs.segment_ids is None else inputs.segment_ids

    def back(x, lag):  # no position sees one after it, or one of another document
        moved, same = (jnp.pad(each, [(0, 0), (lag, 0)] + [(0, 0)] * (each.ndim - 2)) for each in (x, ids + 1))
        length = x.shape[1]
        return moved[:, :length] * (same[:, :length] == ids + 1)[..., None]

    def layer(params, x):
        normed = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        mixed = sum(back(normed, lag) * params["weights"][lag] for lag in range(config.reach))
        inner = jax.nn.gelu(dot(mixed, params["up"], compute.dtype))
        return compute.activations(x + dot(inner, params["down"], compute.dtype), "batch", None, None)

    return apply_layers(layer, params["embed"][inputs.tokens], params["layers"], compute)


def head(params):
    return params["head"]


def build():
    source = files(f"{sysconfig.get_path('stdlib')}/asyncio/*.py", format="text")
    tokens = tokenized("tokenized/asyncio", source=source, held_out=0.1, tokenizer="bytes", version="2026.11.30")
    return train_lm(
        name="checkpoints/asyncio-convolution",
        model=ConvolutionConfig(hidden_dim=64, num_layers=3, reach=6, max_seq_len=2048),
        datasets={tokens: 1.0},
        optimizer=AdamConfig(lr=5e-3),
        batch_size=8,
        seq_len=128,
        num_train_steps=100,
    )


if __name__ == "__main__":
    model = experiment_main(build, version="2026.11.30")
    before, after = model.initial_validation.bits_per_byte, model.validation.bits_per_byte
    print(f"{model.num_params:,} parameters: {before:.3f} bits per byte untrained, {after:.3f} trained")
    print("next: change reach=, and run again under another version, as in: --version 2026.12.01")
