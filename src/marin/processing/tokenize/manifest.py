"""What a token cache says of itself: one JSON file, written last, so that a cache without it is not a cache."""

from __future__ import annotations

import hashlib
import importlib
import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from marin.errors import ConfigurationError, DataError
from marin.processing.bad_records import BadRecordCount
from marin.processing.durable import write_whole

CACHE_FORMAT = 1
"""Number of the layout. A reader refuses a larger one."""

MARIN_LAYOUT = "marin"
"""What ``TokenizedCache.layout`` is called where the files are those that this module describes."""

MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"
TRAIN = "train"
VALIDATION = "validation"

TokenType: TypeAlias = Literal["uint16", "uint32"]

SpecialTokens: TypeAlias = Literal["eos", "bos_eos", "template", "none"]
"""Which tokens surround each document. ``template``: those that the tokenizer's own post-processor adds."""

FormatName: TypeAlias = Literal["text", "chat", "preference", "prebuilt"]
"""What a document of the input is."""


@dataclass(frozen=True, kw_only=True)
class TokenizerIdentity:
    """Which tokenizer it was, and how it behaved: enough to notice another one.

    ``kind`` and ``location`` say where it came from, ``revision`` is the commit of one from the hub. ``sha256`` is of
    the ``tokenizer.json``. ``vocab_size`` is one more than the largest id. ``probe_sha256`` is of the vocabulary, if
    there is one, and of the ids of a fixed text: it changes when a file or a library begins to behave differently.
    """

    kind: Literal["bytes", "file", "hub"]
    location: str
    revision: str | None = None
    sha256: str
    vocab_size: int
    bos_id: int | None
    eos_id: int | None
    eos_token: str | None
    probe_sha256: str

    def agrees_with(self, other: TokenizerIdentity) -> bool:
        """Whether both give the same ids for the same text, wherever they were read from."""
        return (self.probe_sha256, self.vocab_size, self.eos_id) == (other.probe_sha256, other.vocab_size, other.eos_id)


@dataclass(frozen=True, kw_only=True)
class Framing:
    """The ids that surround each document: ``prefix`` in front of it, ``suffix`` behind it."""

    policy: SpecialTokens
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InputRecord:
    """One input file, or a piece of it, as it was read.

    ``bytes`` is the size of the file. ``start`` and ``stop`` bound a piece, in bytes or row groups; a whole file has 0
    and ``None``. ``sha256`` is of the content that was read; of a file that is not on a disk it is ``""``, and
    ``stamp`` says which state of it was read, where its server tells.
    """

    name: str
    bytes: int
    sha256: str
    start: int = 0
    stop: int | None = None
    stamp: str | None = None


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """One file of a split. Counts include the end-of-text token of each document; ``text_bytes`` are UTF-8.

    ``file`` is relative to the cache. ``token_ranges`` gives, per record batch, the offset of the token buffer in the
    file in bytes and its length in tokens, so that a remote reader needs nothing but range requests; the same holds for
    ``offset_ranges`` (int64, one more than there are documents) and ``mask_ranges`` (one byte a token, of a cache with
    a loss mask). The digests are of the content, whatever the container: tokens as little-endian ``dtype``, lengths as
    little-endian int64, the mask as bytes.
    """

    split: str
    file: str
    bytes: int
    tokens: int
    documents: int
    empty_documents: int
    text_bytes: int
    tokens_sha256: str
    lengths_sha256: str
    token_ranges: tuple[tuple[int, int], ...]
    offset_ranges: tuple[tuple[int, int], ...] = ()
    mask_ranges: tuple[tuple[int, int], ...] = ()
    learned_tokens: int | None = None
    mask_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """A group of consecutive input files and the shards made from them: the unit that a killed step need not redo.

    ``recipe`` is a digest of all that decides the tokens besides the inputs.
    """

    part: int
    recipe: str
    inputs: tuple[InputRecord, ...]
    shards: tuple[ShardRecord, ...]
    bad_records: tuple[BadRecordCount, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole cache. ``engine`` is the library that made the ids, and its version.

    ``framing`` is ``None`` where documents bring their own special tokens (chats, ids), and in caches of texts from
    before it was recorded: their documents end with the tokenizer's ``eos_id``.
    """

    format: int
    dtype: TokenType
    tokenizer: TokenizerIdentity | None
    engine: str
    parts: tuple[PartRecord, ...]
    framing: Framing | None = None
    document_format: FormatName = "text"

    def shards(self, split: str) -> tuple[ShardRecord, ...]:
        """The files of one split, in reading order."""
        return tuple(shard for part in self.parts for shard in part.shards if shard.split == split)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have at least one document."""
        counted = (shard.split for part in self.parts for shard in part.shards if shard.documents)
        return tuple(sorted(set(counted)))

    @property
    def content_sha256(self) -> str:
        """Digest of the content of every split: documents, their order and their division into shards."""
        digest = hashlib.sha256(self.dtype.encode())
        for split in self.splits:
            for shard in self.shards(split):
                digest.update(f"\n{split} {shard.tokens_sha256} {shard.lengths_sha256}".encode())
        return digest.hexdigest()


def write_manifest(path: str, manifest: Manifest) -> None:
    """Commit the cache at ``path``."""
    write_whole(os.path.join(path, MANIFEST_FILE), encode_json(manifest))


def read_manifest(path: str) -> Manifest:
    """The manifest of the cache at ``path``.

    Raises ``ConfigurationError`` if none is there, ``DataError`` if it can't be used.
    """
    file = os.path.join(path, MANIFEST_FILE)
    try:
        data = _read(file)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"{path} holds no token cache: there is no {MANIFEST_FILE}. "
            "Give the folder that a tokenized() step made; caches of other tools are brought in with ArtifactStep.adopt"
        ) from None
    _check_format(file, data)
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as fault:
        raise DataError(f"{file} is not the manifest of a token cache: {fault}") from fault


def _read(file: str) -> bytes:
    if "://" in file:
        # By name: it needs a library of file systems, which a script that only describes a pipeline does not.
        return importlib.import_module("marin.processing.tokenize.remote_chunks").read_all(file)
    with open(file, "rb") as stream:
        return stream.read()


def encode_json(value: object) -> bytes:
    """JSON that people can read, the same bytes for the same value."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _check_format(file: str, data: bytes) -> None:
    try:
        found = msgspec.json.decode(data, type=_Format).format
    except msgspec.DecodeError as fault:
        raise DataError(f"{file} is not the manifest of a token cache: {fault}") from fault
    if found > CACHE_FORMAT:
        raise DataError(f"{file} has format {found}; this Marin reads up to {CACHE_FORMAT}: upgrade marin to read it")


@dataclass(frozen=True)
class _Format:
    format: int
