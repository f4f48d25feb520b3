"""Models by name. Each is a frozen config: derive your own with ``dataclasses.replace``.

Counts are for a vocabulary of 32,000, embeddings included; ``model.num_params(vocab)`` gives the exact number.
"""

from __future__ import annotations

from marin.training.models.llama_config import LlamaConfig

__all__ = ["LlamaConfig", "llama_1m", "llama_30m", "llama_150m", "llama_nano"]

llama_nano = LlamaConfig(hidden_dim=32, intermediate_dim=128, num_layers=2, num_heads=2, max_seq_len=2048)
"""2 million parameters, almost all of them embeddings. For tests and first tries: learns little, runs anywhere."""

llama_1m = LlamaConfig(hidden_dim=128, intermediate_dim=384, num_layers=2, num_heads=2, max_seq_len=2048)
"""1.5 million parameters with a vocabulary of 4,096. Learns the shape of a language in a minute on two cores."""

llama_30m = LlamaConfig(
    hidden_dim=384, intermediate_dim=1024, num_layers=6, num_heads=6, num_kv_heads=3, max_seq_len=2048
)
"""34 million parameters. A first real model: an afternoon on a workstation."""

llama_150m = LlamaConfig(hidden_dim=768, intermediate_dim=2048, num_layers=12, num_heads=12, max_seq_len=4096)
"""134 million parameters. One accelerator, hours."""
