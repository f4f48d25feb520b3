"""The Llama family, described: sizes and choices, no arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from marin.errors import ConfigurationError
from marin.execution.fingerprint import absent_means
from marin.processing.scalars import with_plain_numbers
from marin.training.models.rope_scaling import RopeScaling

_SIZES = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "max_seq_len")


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """A decoder of the Llama family: RMSNorm, rotary positions, SwiGLU, grouped-query attention.

    With ``qkv_bias`` it is what Qwen 2 is, with ``qk_norm`` and ``head_size`` Qwen 3. The vocabulary is not part of it:
    it comes with the tokens.

    >>> tiny = LlamaConfig(hidden_dim=32, intermediate_dim=128, num_layers=2, num_heads=2, max_seq_len=2048)
    >>> tiny.head_dim, tiny.num_params(vocab_size=256)
    (16, 49312)
    """

    fingerprint_name: ClassVar[str] = "marin.LlamaConfig"
    implementation: ClassVar[str] = "marin.training.models.llama"

    hidden_dim: int
    intermediate_dim: int
    num_layers: int
    num_heads: int
    max_seq_len: int
    num_kv_heads: int | None = None
    """Heads of keys and values, each shared by ``num_heads / num_kv_heads`` queries. ``None``: ``num_heads``."""
    tie_embeddings: bool = False
    """Whether one matrix both embeds tokens and predicts them."""
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    head_size: int | None = field(default=None, metadata=absent_means(None))
    """Numbers per head. ``None``: ``hidden_dim / num_heads``."""
    rope_scaling: RopeScaling | None = field(default=None, metadata=absent_means(None))
    """Make it with ``linear_scaling`` or ``llama3_scaling`` of ``marin.training.models.rope_scaling``."""
    qkv_bias: bool = field(default=False, metadata=absent_means(False))
    """Whether a bias is added to queries, keys and values."""
    qk_norm: bool = field(default=False, metadata=absent_means(False))
    """Whether each head's queries and keys go through an RMSNorm before they are turned by their position."""

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        for name in (*_SIZES, "num_kv_heads", "head_size"):
            value = getattr(self, name)
            if name not in _SIZES and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"LlamaConfig: {name}={value!r} is not a positive whole number")
        for name in ("rope_theta", "norm_eps"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigurationError(f"LlamaConfig: {name}={value!r} is not a positive number")
        for name in ("tie_embeddings", "qkv_bias", "qk_norm"):
            if type(getattr(self, name)) is not bool:
                raise ConfigurationError(f"LlamaConfig: {name}={getattr(self, name)!r} is not True or False")
        if not isinstance(self.rope_scaling, RopeScaling | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"LlamaConfig: rope_scaling={self.rope_scaling!r} is no RopeScaling: "
                "write linear_scaling(factor) or llama3_scaling(...)"
            )
        self._check_heads()

    def _check_heads(self) -> None:
        if self.head_size is not None and self.head_size % 2:
            raise ConfigurationError(
                f"LlamaConfig: head_size={self.head_size} is odd, and rotary positions turn pairs of numbers: choose "
                "an even one"
            )
        if self.head_size is None and (self.hidden_dim % self.num_heads or self.head_dim % 2):
            raise ConfigurationError(
                f"LlamaConfig: hidden_dim={self.hidden_dim} can't be split into num_heads={self.num_heads} heads of an "
                "even size (rotary positions turn pairs of numbers): choose a multiple of 2 * num_heads, or give "
                "head_size"
            )
        if self.num_heads % self.kv_heads:
            raise ConfigurationError(
                f"LlamaConfig: num_heads={self.num_heads} is not a multiple of num_kv_heads={self.num_kv_heads}: "
                "each head of keys and values serves the same number of queries"
            )

    @property
    def head_dim(self) -> int:
        """Numbers per head, with the default filled in."""
        return self.hidden_dim // self.num_heads if self.head_size is None else self.head_size

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values, with the default filled in."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    def num_params(self, vocab_size: int) -> int:
        """Exact number of parameters, the embedding and the head included (a tied matrix counts once)."""
        embeddings = vocab_size * self.hidden_dim * (1 if self.tie_embeddings else 2)
        norms = (2 * self.num_layers + 1) * self.hidden_dim
        vectors = 2 * self.head_dim if self.qk_norm else 0
        if self.qkv_bias:
            vectors += (self.num_heads + 2 * self.kv_heads) * self.head_dim
        return embeddings + norms + self.num_layers * (self._layer_matrix_params + vectors)

    def flops_per_token(self, vocab_size: int, seq_len: int) -> float:
        """Floating-point operations of one training step per token: matrix products only, forward and backward.

        A multiply-add is two operations; the backward pass costs twice the forward pass; attention is causal, so that
        a token looks at ``(seq_len + 1) / 2`` positions on average. The embedding look-up costs none.
        """
        matrices = self.num_layers * self._layer_matrix_params + vocab_size * self.hidden_dim
        width = self.num_heads * self.head_dim
        attention = self.num_layers * 2 * width * (seq_len + 1) / 2  # queries by keys, then weights by values
        return 3 * 2 * (matrices + attention)

    @property
    def _layer_matrix_params(self) -> int:
        attention = self.hidden_dim * self.head_dim * (2 * self.num_heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden_dim * self.intermediate_dim
