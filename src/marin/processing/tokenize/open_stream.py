"""Open any token cache for the trainer: ours, or one of another tool."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from marin.processing.tokenize.cache import TokenCache
from marin.processing.tokenize.foreign.recognise import recognise
from marin.processing.tokenize.manifest import MANIFEST_FILE, MARIN_LAYOUT, TRAIN, read_manifest
from marin.processing.tokenize.stream import Ids, Ints, Mask, TokenStream
from marin.processing.tokenize.tokenize import TokenizedCache


def open_stream(path: str, split: str = TRAIN, layout: str | None = None) -> TokenStream:
    """One split of the cache at ``path``, mapped and not read.

    ``layout`` is that of the ``TokenizedCache``, such as ``marin`` or ``megatron``; ``None``: whichever lies there.
    Raises ``ConfigurationError`` for a place that holds no cache or lacks the split, ``DataError`` for damaged files.
    """
    return TokenCache.open(path, split) if _is_ours(path, layout) else recognise(path, layout).open(split)


def splits_of(path: str, layout: str | None = None) -> tuple[str, ...]:
    """The splits of the cache at ``path`` that hold documents."""
    if _is_ours(path, layout):
        return read_manifest(path).splits
    return tuple(recognise(path, layout).splits)


def _is_ours(path: str, layout: str | None) -> bool:
    if layout is not None:
        return layout == MARIN_LAYOUT
    # Other layouts are mapped, and so read from disks only.
    return "://" in path or os.path.isfile(os.path.join(path, MANIFEST_FILE))


def open_split(cache: TokenizedCache, split: str) -> OpenSplit:
    """One split of an artifact, with what the artifact knows of it."""
    return OpenSplit(cache, split, open_stream(cache.path, split, cache.layout))


@dataclass(frozen=True)
class OpenSplit:
    """A ``TokenStream`` that knows where it comes from."""

    cache: TokenizedCache
    split: str
    stream: TokenStream

    @property
    def path(self) -> str:
        return self.cache.path

    @property
    def text_bytes(self) -> int:
        """Bytes of UTF-8 text that the split was made from; 0: not known."""
        return self.cache.splits[self.split].text_bytes

    @property
    def num_tokens(self) -> int:
        return self.stream.num_tokens

    @property
    def num_documents(self) -> int:
        return self.stream.num_documents

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.stream.dtype

    def tokens(self, start: int, count: int) -> Ids:
        return self.stream.tokens(start, count)

    def windows(self, starts: npt.NDArray[np.integer[Any]], length: int) -> Ids:
        return self.stream.windows(starts, length)

    def document_ends(self, start: int, count: int) -> Ints:
        return self.stream.document_ends(start, count)

    def loss_mask(self, start: int, count: int) -> Mask | None:
        return self.stream.loss_mask(start, count)

    @property
    def contents(self) -> dict[str, str]:
        """A digest of the content of each part that could be shared with another cache, and what the part is called."""
        if self.cache.layout != MARIN_LAYOUT:
            return {self.cache.spot_sha256[self.split]: f"the {self.split} split"}
        shards = [shard for shard in read_manifest(self.path).shards(self.split) if shard.documents]
        return {f"{shard.tokens_sha256} {shard.lengths_sha256}": shard.file for shard in shards}
