"""Describe a token cache: the artifact and the config of the step that makes it. The work is in ``build``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import msgspec

from marin.errors import ArtifactTypeError, ConfigurationError, DataError, TokenizerMismatchError
from marin.execution.artifact import Artifact, at_path
from marin.execution.fingerprint import execution_only
from marin.processing.sources import Source
from marin.processing.tokenize.manifest import (
    CACHE_FORMAT,
    TRAIN,
    VALIDATION,
    Manifest,
    ShardRecord,
    TokenizerIdentity,
    TokenType,
    read_manifest,
)
from marin.processing.tokenize.tokenizers import TokenizerSource

__all__ = ["SplitSummary", "TokenizeConfig", "TokenizedCache", "TokenizerIdentity"]


@dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """What the tokenize step is asked to do.

    ``held_out`` is the fraction of documents, chosen by a hash of their text, that becomes the validation split; files
    of ``validation`` become it as a whole and are left out of training. ``eos_token`` names the token that ends each
    document; ``None``: the one that the tokenizer itself declares. A part of about ``part_bytes`` of input is what a
    killed step may have to redo; ``batch_bytes`` of text are encoded at once. Neither changes a token.
    """

    fingerprint_name: ClassVar[str] = "marin.TokenizeConfig"

    output_path: str
    source: Source
    tokenizer: TokenizerSource
    validation: Source | None = None
    held_out: float = 0.0
    text_key: str = "text"
    eos_token: str | None = None
    part_bytes: int = field(default=64_000_000, metadata=execution_only())
    batch_bytes: int = field(default=2_000_000, metadata=execution_only())


@dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """Size of one split. ``tokens`` include one end-of-text token per document, ``text_bytes`` are UTF-8 without it.

    ``empty_documents`` were in the input and are not in the cache.
    """

    tokens: int
    documents: int
    text_bytes: int
    empty_documents: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenizedCache(Artifact):
    """Documents as token ids, ready for training. ``marin.processing.tokenize.cache`` reads it.

    ``splits`` holds ``train`` and, if there is one, ``validation``. ``content_sha256`` is of tokens and lengths alone:
    two caches with equal digests hold the same documents in the same order.
    """

    fingerprint_name: ClassVar[str] = "marin.TokenizedCache"

    splits: dict[str, SplitSummary]
    dtype: TokenType
    vocab_size: int
    tokenizer: TokenizerIdentity
    content_sha256: str
    sources: tuple[str, ...] = ()
    format: int = CACHE_FORMAT

    @property
    def num_train_tokens(self) -> int:
        return self.splits[TRAIN].tokens

    @property
    def has_validation(self) -> bool:
        return VALIDATION in self.splits

    def verify(self) -> None:
        """Raise ``DataError`` unless what lies at ``path`` is this cache, and every file of it is there in full.

        That is seen by the manifest, and by the size of each file.
        """
        manifest = read_manifest(self.path)
        for split in manifest.splits:
            for shard in manifest.shards(split):
                _check_size(os.path.join(self.path, shard.file), shard)
        if (counted := summaries(manifest)) != self.splits:
            raise DataError(
                f"{self.path}: the manifest counts {counted}, the artifact says {self.splits}; build it again"
            )
        if manifest.tokenizer is not None and not manifest.tokenizer.agrees_with(self.tokenizer):
            raise DataError(
                f"{self.path} was made by tokenizer {manifest.tokenizer.location}, the artifact says "
                f"{self.tokenizer.location}: another cache was put in its place; put it back, or build it again"
            )
        if manifest.content_sha256 != self.content_sha256:
            raise DataError(
                f"{self.path} holds other tokens than the artifact says: another cache was put in its place; "
                "put it back, or build it again"
            )

    @classmethod
    def from_manifest(cls, manifest: Manifest, tokenizer: TokenizerIdentity, *, sources: tuple[str, ...]) -> Self:
        """The artifact that ``manifest`` describes."""
        return cls(
            splits=summaries(manifest),
            dtype=manifest.dtype,
            vocab_size=tokenizer.vocab_size,
            tokenizer=tokenizer,
            content_sha256=manifest.content_sha256,
            sources=sources,
            format=manifest.format,
        )

    @classmethod
    def from_source(cls, path: str, config: Mapping[str, Any]) -> Self:
        """The artifact of a token cache that lies at ``path``, from its manifest.

        ``config={"tokenizer": {...}}`` gives the fields of ``TokenizerIdentity`` where the cache lacks them; for a
        cache that has its own, a name or digest will do, and one that differs is a ``TokenizerMismatchError``.
        """
        unknown = sorted(set(config) - {"tokenizer"})
        if unknown:
            raise ConfigurationError(f"adopting {path}: config has no {', '.join(unknown)}; it may hold 'tokenizer'")
        manifest = read_manifest(path)
        tokenizer = _adopted_tokenizer(path, manifest.tokenizer, config.get("tokenizer"))
        cache = at_path(cls.from_manifest(manifest, tokenizer, sources=(path,)), path)
        cache.verify()
        return cache


def summaries(manifest: Manifest) -> dict[str, SplitSummary]:
    """The size of each split."""
    return {split: _summary(manifest.shards(split)) for split in manifest.splits}


def _summary(shards: tuple[ShardRecord, ...]) -> SplitSummary:
    return SplitSummary(
        tokens=sum(shard.tokens for shard in shards),
        documents=sum(shard.documents for shard in shards),
        text_bytes=sum(shard.text_bytes for shard in shards),
        empty_documents=sum(shard.empty_documents for shard in shards),
    )


def _check_size(file: str, shard: ShardRecord) -> None:
    try:
        size = os.stat(file).st_size
    except FileNotFoundError:
        raise DataError(f"{file} is missing from the token cache: build it again, or copy the cache anew") from None
    if size != shard.bytes:
        raise DataError(
            f"{file} has {size:,} bytes, its manifest says {shard.bytes:,}: build it again, or copy the cache anew"
        )


def _adopted_tokenizer(path: str, recorded: TokenizerIdentity | None, given: Any) -> TokenizerIdentity:
    if given is None:
        if recorded is None:
            raise ConfigurationError(
                f"the token cache {path} does not say which tokenizer made it: "
                "adopt it with config={'tokenizer': {...}}, the fields of TokenizerIdentity"
            )
        return recorded
    if isinstance(given, str) and recorded is not None:
        return _checked_name(path, recorded, given)
    try:
        stated = given if isinstance(given, TokenizerIdentity) else msgspec.convert(given, TokenizerIdentity)
    except msgspec.ValidationError as fault:
        raise ArtifactTypeError(f"adopting {path}: config['tokenizer'] is not a TokenizerIdentity: {fault}") from fault
    if recorded is not None and not stated.agrees_with(recorded):
        raise _mismatch(path, recorded, f"{stated.location} (vocabulary {stated.vocab_size:,})")
    return stated


def _checked_name(path: str, recorded: TokenizerIdentity, given: str) -> TokenizerIdentity:
    if given not in (recorded.location, recorded.sha256):
        raise _mismatch(path, recorded, given)
    return recorded


def _mismatch(path: str, recorded: TokenizerIdentity, stated: str) -> TokenizerMismatchError:
    return TokenizerMismatchError(
        f"the token cache {path} was made by {recorded.location} (vocabulary {recorded.vocab_size:,}), "
        f"config['tokenizer'] says {stated}: leave the entry out"
    )
