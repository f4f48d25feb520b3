"""GPT-2, described: sizes, no arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from marin.errors import ConfigurationError
from marin.processing.scalars import with_plain_numbers


@dataclass(frozen=True, kw_only=True)
class Gpt2Config:
    """A decoder as GPT-2 is: learned positions, LayerNorm, an MLP with GELU, biases, one matrix for both embeddings.

    The vocabulary is not part of it: it comes with the tokens.

    >>> Gpt2Config(hidden_dim=768, num_layers=12, num_heads=12, max_seq_len=1024).num_params(vocab_size=50_257)
    124439808
    """

    fingerprint_name: ClassVar[str] = "marin.Gpt2Config"
    implementation: ClassVar[str] = "marin.training.models.gpt2"

    hidden_dim: int
    num_layers: int
    num_heads: int
    max_seq_len: int
    """Positions that are learned: no sequence can be longer."""
    intermediate_dim: int | None = None
    """Width of the MLP. ``None``: ``4 * hidden_dim``."""
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        for name in ("hidden_dim", "num_layers", "num_heads", "max_seq_len", "intermediate_dim"):
            value = getattr(self, name)
            if name == "intermediate_dim" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"Gpt2Config: {name}={value!r} is not a positive whole number")
        eps = self.norm_eps
        if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 < eps < math.inf:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"Gpt2Config: norm_eps={eps!r} is not a positive number")
        if self.hidden_dim % self.num_heads:
            raise ConfigurationError(
                f"Gpt2Config: hidden_dim={self.hidden_dim} can't be split into num_heads={self.num_heads} heads: "
                "choose a multiple of num_heads"
            )

    @property
    def head_dim(self) -> int:
        """Numbers per head."""
        return self.hidden_dim // self.num_heads

    @property
    def inner_dim(self) -> int:
        """Width of the MLP, with the default filled in."""
        return 4 * self.hidden_dim if self.intermediate_dim is None else self.intermediate_dim

    def num_params(self, vocab_size: int) -> int:
        """Exact number of parameters; the matrix that embeds and predicts counts once."""
        embeddings = (vocab_size + self.max_seq_len) * self.hidden_dim
        # Biases of queries, keys, values, both outputs and the MLP, and two norms of a weight and a bias each.
        vectors = 9 * self.hidden_dim + self.inner_dim
        return embeddings + self.num_layers * (self._layer_matrix_params + vectors) + 2 * self.hidden_dim

    def flops_per_token(self, vocab_size: int, seq_len: int) -> float:
        """Floating-point operations of one training step per token: matrix products only, forward and backward.

        Counted as by ``LlamaConfig.flops_per_token``.
        """
        matrices = self.num_layers * self._layer_matrix_params + vocab_size * self.hidden_dim
        attention = self.num_layers * 2 * self.hidden_dim * (seq_len + 1) / 2
        return 3 * 2 * (matrices + attention)

    @property
    def _layer_matrix_params(self) -> int:
        return 4 * self.hidden_dim * self.hidden_dim + 2 * self.hidden_dim * self.inner_dim
