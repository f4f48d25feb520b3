"""What a set of documents says of itself: one file, written last, so that a folder without it is no such set."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

import msgspec

from marin.errors import ConfigurationError, DataError
from marin.processing.bad_records import BadRecordCount
from marin.processing.durable import write_whole
from marin.processing.tokenize.manifest import InputRecord, encode_json

FORMAT = 1
"""Number of the layout. A reader refuses a larger one."""

MANIFEST_FILE = "documents.manifest"
"""JSON, but not by its name: whoever reads the folder as a source of documents must not take it for one."""


@dataclass(frozen=True, kw_only=True)
class DocumentShard:
    """One file: its name below the set, its size and its documents. ``text_bytes`` are UTF-8.

    ``content_sha256`` is of the ids one after the other, and so of the texts, whatever wrote the file.
    """

    file: str
    bytes: int
    documents: int
    text_bytes: int
    content_sha256: str


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """Pieces of the input, and what became of their documents: the unit that a killed step need not redo.

    ``recipe`` is a digest of all that decides the documents besides the inputs. ``shard``: ``None`` if no document is
    left. ``documents`` were read; ``duplicates``, ``empty``, ``dropped`` and ``failed`` of them are not in the shard.
    ``filled``: how many of those that were read have something in each of the further columns.
    ``runs`` are the lengths of the runs of digests that the part has written, ``runs_sha256`` is of these; only as long
    as they are there.
    """

    part: int
    recipe: str
    inputs: tuple[InputRecord, ...]
    shard: DocumentShard | None
    documents: int
    duplicates: int = 0
    empty: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    filled: dict[str, int] = field(default_factory=dict[str, int])
    failed: tuple[BadRecordCount, ...] = ()
    bad_records: tuple[BadRecordCount, ...] = ()
    runs: tuple[int, ...] = ()
    runs_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class DocumentManifest:
    """The whole set, part by part, in reading order. ``columns`` are those of each shard, ``recipe`` is that of all."""

    format: int
    recipe: str
    columns: tuple[str, ...]
    parts: tuple[PartRecord, ...]

    @property
    def shards(self) -> tuple[DocumentShard, ...]:
        """The files, in reading order."""
        return tuple(part.shard for part in self.parts if part.shard is not None)

    @property
    def content_sha256(self) -> str:
        """Digest of the texts, their order and their division into shards."""
        return hashlib.sha256(" ".join(shard.content_sha256 for shard in self.shards).encode()).hexdigest()


def write_manifest(path: str, manifest: DocumentManifest) -> None:
    """Commit the set at ``path``."""
    write_whole(os.path.join(path, MANIFEST_FILE), encode_json(manifest))


def read_manifest(path: str) -> DocumentManifest:
    """The manifest of the set at ``path``.

    Raises ``ConfigurationError`` if none is there, ``DataError`` if it can't be used.
    """
    file = os.path.join(path, MANIFEST_FILE)
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigurationError(
            f"{path} holds no documents of normalized() or filtered(): there is no {MANIFEST_FILE} in it. "
            "Give the folder that such a step made; other files are a source= for one"
        ) from None
    try:
        found = msgspec.json.decode(data, type=_Format).format
        if found > FORMAT:
            raise DataError(f"{file} has format {found}; this Marin reads up to {FORMAT}: upgrade marin to read it")
        return msgspec.json.decode(data, type=DocumentManifest)
    except msgspec.DecodeError as fault:
        raise DataError(f"{file} is damaged ({fault}): build it again, or copy it anew") from fault


@dataclass(frozen=True)
class _Format:
    format: int
