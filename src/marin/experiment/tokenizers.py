"""Tokenizers by name."""

from __future__ import annotations

from typing import Final

from marin.processing.tokenize.tokenizers import BYTES, hub_tokenizer

__all__ = ["byte_tokenizer", "hub_tokenizer", "marin_tokenizer"]

marin_tokenizer: Final = "marin-community/marin-tokenizer"
"""The hub id of the tokenizer of the Marin models: Llama 3's vocabulary of 128,256. Downloaded when a step needs it."""

byte_tokenizer: Final = BYTES
"""No vocabulary: 256 bytes and an end-of-text id. Needs no network and no training."""
