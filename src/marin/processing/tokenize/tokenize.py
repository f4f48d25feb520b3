"""Describe a token cache: the artifact and the config of the step that makes it. The work is in ``build``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from marin.errors import ConfigurationError, DataError, TokenizerMismatchError
from marin.execution.artifact import Artifact, at_path
from marin.execution.fingerprint import absent_means, execution_only
from marin.processing.bad_records import BadRecordCount, OnBadRecord, merge_counts
from marin.processing.sources import Source
from marin.processing.tokenize.formats import DocumentFormat
from marin.processing.tokenize.manifest import (
    CACHE_FORMAT,
    MANIFEST_FILE,
    MARIN_LAYOUT,
    TRAIN,
    VALIDATION,
    FormatName,
    Framing,
    Manifest,
    ShardRecord,
    SpecialTokens,
    TokenizerIdentity,
    TokenType,
    read_manifest,
)
from marin.processing.tokenize.tokenizers import TokenizerSource

if TYPE_CHECKING:
    from marin.processing.tokenize.inspection import LengthStatistics, SampledDocument, TokenArray

__all__ = ["SplitSummary", "TokenizeConfig", "TokenizedCache", "TokenizerIdentity"]


@dataclass(frozen=True, kw_only=True)
class TokenizeConfig:
    """What the tokenize step is asked to do.

    ``held_out`` is the fraction of documents, chosen by a hash of their text, that becomes the validation split; files
    of ``validation`` become it as a whole and are left out of training. ``eos_token`` names the token that ends each
    document; ``None``: the one that the tokenizer itself declares. ``sample_count``: only so many documents, the first.
    ``max_bad_fraction`` is how many records may be skipped where ``on_bad_record`` is ``"skip"``.

    A part of about ``part_bytes`` of input is what a killed worker may have to redo (``None``: by the size of the
    input); ``batch_bytes`` of text are encoded at once; ``workers`` processes work (``None``: one for each core). None
    of these changes a token.
    """

    fingerprint_name: ClassVar[str] = "marin.TokenizeConfig"

    output_path: str
    source: Source
    tokenizer: TokenizerSource
    validation: Source | None = None
    held_out: float = 0.0
    text_key: str = "text"
    eos_token: str | None = None
    bos_token: str | None = field(default=None, metadata=absent_means(None))
    special_tokens: SpecialTokens = field(default="eos", metadata=absent_means("eos"))
    parse_special: bool = field(default=False, metadata=absent_means(False))
    format: DocumentFormat | None = field(default=None, metadata=absent_means(None))
    sample_count: int | None = field(default=None, metadata=absent_means(None))
    on_bad_record: OnBadRecord = field(default="error", metadata=absent_means("error"))
    max_bad_fraction: float = field(default=0.01, metadata=absent_means(0.01))
    workers: int | None = field(default=None, metadata=execution_only())
    part_bytes: int | None = field(default=None, metadata=execution_only())
    batch_bytes: int = field(default=1_000_000, metadata=execution_only())


@dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """Size of one split. ``tokens`` include one end-of-text token per document, ``text_bytes`` are UTF-8 without it.

    ``empty_documents`` were in the input and are not in the cache. ``learned_tokens``: those that count in the loss;
    ``None``: all.
    """

    tokens: int
    documents: int
    text_bytes: int
    empty_documents: int = 0
    learned_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class TokenizedCache(Artifact):
    """Documents as token ids, ready for training. ``marin.processing.tokenize.open_stream`` reads it.

    ``splits`` holds ``train`` and, if there are such, ``validation`` and ``test``. ``content_sha256`` is of tokens and
    lengths alone: two caches with equal digests hold the same documents in the same order. ``layout`` is the tool whose
    files these are; of an adopted cache of another tool than Marin, ``spot_sha256`` is of a sample of each split.
    ``engine`` is the library that made the ids, ``framing`` what surrounds each document, ``bad_records`` what was left
    out, by reason.
    """

    fingerprint_name: ClassVar[str] = "marin.TokenizedCache"

    splits: dict[str, SplitSummary]
    dtype: TokenType
    vocab_size: int
    tokenizer: TokenizerIdentity
    content_sha256: str
    sources: tuple[str, ...] = ()
    format: int = CACHE_FORMAT
    layout: str = MARIN_LAYOUT
    spot_sha256: dict[str, str] = field(default_factory=dict)
    engine: str = ""
    framing: Framing | None = None
    document_format: FormatName = "text"
    bad_records: tuple[BadRecordCount, ...] = ()

    @property
    def num_train_tokens(self) -> int:
        return self.splits[TRAIN].tokens

    @property
    def has_validation(self) -> bool:
        return VALIDATION in self.splits

    @property
    def num_documents(self) -> int:
        """Documents of the train split."""
        return self.splits[TRAIN].documents

    def tokens(self, split: str = TRAIN) -> TokenArray:
        """All tokens of a split as one array that is mapped, not read: slice it."""
        return _inspection().token_array(self, split)

    def decode(self, ids: Any) -> str:
        """The text of ``ids``, an array or a list, by the tokenizer that made the cache.

        Raises ``TokenizerMismatchError`` if that tokenizer does not behave any more as it did.
        """
        return _inspection().decode(self, ids)

    def sample(self, count: int, *, split: str = TRAIN, seed: int = 0) -> list[SampledDocument]:
        """``count`` documents with their text and loss mask, chosen by ``seed``."""
        return _inspection().sample(self, count, split=split, seed=seed)

    def length_statistics(self, split: str = TRAIN) -> LengthStatistics:
        """How long the documents of a split are, in tokens."""
        return _inspection().length_statistics(self, split)

    def verify(self) -> None:
        """Raise ``DataError`` unless what lies at ``path`` is this cache, and every file of it is there in full.

        That is seen by the manifest, and by the size of each file; of another tool's cache by sizes and a sample.
        """
        if self.layout != MARIN_LAYOUT:
            _adoption().verify_adopted(self)
            return
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

    def check_adopted(self) -> None:
        """Raise ``DataError`` unless the trainer can read all of it: files, counts, and ids below the vocabulary."""
        self.verify()
        if self.layout == MARIN_LAYOUT:  # of other layouts ``from_source`` has read everything
            importlib.import_module("marin.processing.tokenize.cache").check_readable(self.path)

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
            engine=manifest.engine,
            framing=manifest.framing,
            document_format=manifest.document_format,
            bad_records=merge_counts(part.bad_records for part in manifest.parts),
        )

    @classmethod
    def from_source(cls, path: str, config: Mapping[str, Any]) -> Self:
        """The artifact of a token cache that lies at ``path``, ours or another tool's.

        ``config`` may hold ``tokenizer``: what ``tokenized(tokenizer=...)`` takes, or the fields of
        ``TokenizerIdentity``, where the cache does not say it itself. For a cache of ours that does, a name or digest
        will do, and one that differs is a ``TokenizerMismatchError``. ``eos_token`` is the token that ends documents,
        if the tokenizer does not declare one; ``layout`` says what the cache is where several may be there.
        """
        if unknown := sorted(set(config) - set(_CONFIG_KEYS)):
            raise ConfigurationError(
                f"adopting {path}: config has no {', '.join(unknown)}; it may hold {', '.join(map(repr, _CONFIG_KEYS))}"
            )
        ours = os.path.isfile(os.path.join(path, MANIFEST_FILE))
        if config.get("layout", MARIN_LAYOUT if ours else None) != MARIN_LAYOUT:
            return cast("Self", _adoption().adopted_cache(path, config))
        manifest = read_manifest(path)
        tokenizer = _adopted_tokenizer(path, manifest.tokenizer, config)
        cache = at_path(cls.from_manifest(manifest, tokenizer, sources=(path,)), path)
        cache.verify()
        return cache


_CONFIG_KEYS = ("tokenizer", "eos_token", "layout")


def _inspection() -> Any:
    return importlib.import_module("marin.processing.tokenize.inspection")  # by name, as below


def _adoption() -> Any:
    # By name: it needs numpy and pyarrow, which a script that only describes a pipeline does not.
    return importlib.import_module("marin.processing.tokenize.foreign.adopt")


def summaries(manifest: Manifest) -> dict[str, SplitSummary]:
    """The size of each split."""
    return {split: _summary(manifest.shards(split)) for split in manifest.splits}


def _summary(shards: tuple[ShardRecord, ...]) -> SplitSummary:
    learned = [shard.learned_tokens for shard in shards if shard.learned_tokens is not None]
    return SplitSummary(
        tokens=sum(shard.tokens for shard in shards),
        documents=sum(shard.documents for shard in shards),
        text_bytes=sum(shard.text_bytes for shard in shards),
        empty_documents=sum(shard.empty_documents for shard in shards),
        learned_tokens=sum(learned) if len(learned) == len(shards) else None,
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


def _adopted_tokenizer(path: str, recorded: TokenizerIdentity | None, config: Mapping[str, Any]) -> TokenizerIdentity:
    given, eos_token = config.get("tokenizer"), config.get("eos_token")
    if recorded is not None and eos_token not in (None, recorded.eos_token):
        raise TokenizerMismatchError(
            f"the token cache {path} was made with eos_token={recorded.eos_token!r}, config['eos_token'] says "
            f"{eos_token!r}: leave the entry out"
        )
    if given is None:
        if recorded is None:
            raise ConfigurationError(
                f"the token cache {path} does not say which tokenizer made it: adopt it with {_adoption().HOW_TO_GIVE}"
            )
        return recorded
    if isinstance(given, str) and recorded is not None:
        return _checked_name(path, recorded, given)
    stated: TokenizerIdentity = _adoption().given_tokenizer(path, given, eos_token)[0]
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
