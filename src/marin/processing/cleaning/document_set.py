"""What the steps that prepare text are about: documents, and sets of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from marin.errors import DataError
from marin.execution.artifact import Artifact
from marin.processing.bad_records import BadRecordCount, merge_counts
from marin.processing.cleaning.manifest import FORMAT, DocumentManifest, read_manifest

ID, TEXT, SOURCE = OWN_COLUMNS = ("id", "text", "source")


@dataclass(frozen=True, slots=True)
class Document:
    """One document, as a function of ``filtered`` gets it.

    ``id``: the first 32 hex digits of the sha256 of its text. ``source``: the file that it was read from, and which
    record of it. ``fields``: what ``keep`` asked for, as text; what is no text there is its JSON, ``None`` is absent.
    """

    id: str
    text: str
    source: str
    fields: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])


@dataclass(frozen=True, slots=True)
class Drop:
    """What a function of ``filtered`` returns to leave a document out: it is counted under ``reason``.

    >>> def keep(document: Document) -> bool | Drop:
    ...     return Drop("short") if len(document.text) < 100 else True
    """

    reason: str


@dataclass(frozen=True, kw_only=True)
class DocumentSet(Artifact):
    """Documents in the files ``part-*.parquet`` at ``path``, in reading order: any step that reads files reads them.

    Columns are ``id``, ``text``, ``source`` and what was asked for with ``keep``, all of them text. Of the
    ``documents_read``, ``documents`` are there; the others are ``duplicates``, ``empty``, ``dropped`` by reason, or
    ``failed`` where the function did. ``bad_records`` could not be read in the first place.

    ``content_sha256`` is of the ids in order: equal digests, equal texts in the same order.
    """

    fingerprint_name: ClassVar[str] = "marin.DocumentSet"

    documents: int
    text_bytes: int
    documents_read: int
    duplicates: int
    empty: int
    dropped: dict[str, int]
    failed: tuple[BadRecordCount, ...]
    bad_records: tuple[BadRecordCount, ...]
    columns: tuple[str, ...]
    shards: int
    bytes: int
    content_sha256: str
    sources: tuple[str, ...] = ()
    format: int = FORMAT

    def verify(self) -> None:
        """Raise ``DataError`` unless what lies at ``path`` is this set, and every file of it is there in full."""
        manifest = read_manifest(self.path)
        for shard in manifest.shards:
            file = os.path.join(self.path, shard.file)
            size = os.path.getsize(file) if os.path.isfile(file) else None
            if size != shard.bytes:
                has = "is missing" if size is None else f"has {size:,} bytes, its manifest says {shard.bytes:,}"
                raise DataError(f"{file} {has}: build it again, or copy the documents anew")
        if self != DocumentSet.from_manifest(manifest, sources=self.sources):
            raise DataError(
                f"{self.path} holds other documents than the artifact says: others were put in their place; "
                "put them back, or build it again"
            )

    @classmethod
    def from_manifest(cls, manifest: DocumentManifest, *, sources: tuple[str, ...]) -> Self:
        """The artifact that ``manifest`` describes."""
        parts, shards = manifest.parts, manifest.shards
        dropped = Counter[str]()
        for part in parts:
            dropped.update(part.dropped)
        return cls(
            documents=sum(shard.documents for shard in shards),
            text_bytes=sum(shard.text_bytes for shard in shards),
            documents_read=sum(part.documents for part in parts),
            duplicates=sum(part.duplicates for part in parts),
            empty=sum(part.empty for part in parts),
            dropped=dict(sorted(dropped.items())),
            failed=merge_counts(part.failed for part in parts),
            bad_records=merge_counts(part.bad_records for part in parts),
            columns=manifest.columns,
            shards=len(shards),
            bytes=sum(shard.bytes for shard in shards),
            content_sha256=manifest.content_sha256,
            sources=sources,
            format=manifest.format,
        )
