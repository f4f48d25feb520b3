"""What one worker does: read a part, encode it, write its shards and its record."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from marin.processing.bad_records import BadRecords, OnBadRecord
from marin.processing.documents import is_held_out
from marin.processing.durable import write_whole
from marin.processing.tokenize.cache import ShardWriter
from marin.processing.tokenize.chat import ChatEncoder
from marin.processing.tokenize.engines import Engine
from marin.processing.tokenize.examples import ChatReader, ExampleReader, PrebuiltReader, TextReader, utf8_bytes
from marin.processing.tokenize.formats import ChatFormat, DocumentFormat, PrebuiltFormat, PreferenceFormat
from marin.processing.tokenize.manifest import (
    CACHE_FORMAT,
    TRAIN,
    VALIDATION,
    Framing,
    InputRecord,
    PartRecord,
    ShardRecord,
    TokenizerIdentity,
    encode_json,
)
from marin.processing.tokenize.pairs import PreferenceReader
from marin.processing.tokenize.parts import Part, check_unchanged, input_record

PART_RECORDS = "parts"
"""Folder of the records of finished parts, for as long as there is no manifest."""

LARGE_BYTES = 32_000_000
"""A longer text is encoded piece by piece, and its ids go to the disk as they come."""

Told = Callable[[int, int], None]
"""Is told how many bytes of a part are read and how many tokens it has given so far."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that decides the tokens of a part besides its input, and where it is written."""

    root: str
    identity: TokenizerIdentity
    framing: Framing
    bos_token: str | None
    engine: str
    text_key: str
    format: DocumentFormat | None
    chat_template: str | None
    held_out: float
    parse_special: bool
    on_bad_record: OnBadRecord
    batch_bytes: int
    sample_count: int | None

    def recipe(self, split: str) -> str:
        """Digest of what decides the tokens of a part of ``split``: parts with another one are not used again."""
        facts = {
            "format": CACHE_FORMAT,
            "engine": self.engine,
            "tokenizer": asdict(self.identity),
            "framing": asdict(self.framing),
            "text_key": self.text_key,
            "document_format": None if self.format is None else [type(self.format).__name__, asdict(self.format)],
            "chat_template": self.chat_template,
            "held_out": self.held_out,
            "parse_special": self.parse_special,
            "on_bad_record": self.on_bad_record,
            "batch_bytes": self.batch_bytes,
            "sample_count": self.sample_count,
            "split": split,
        }
        return hashlib.sha256(encode_json(facts)).hexdigest()

    def reader(self, engine: Engine, chat: ChatEncoder | None) -> ExampleReader:
        """What reads and encodes the documents."""
        match self.format:
            case None:
                return TextReader(engine, self.framing, self.text_key)
            case PrebuiltFormat():
                return PrebuiltReader(self.format, self.identity.vocab_size)
            case ChatFormat():
                assert chat is not None  # one without a template was refused
                return ChatReader(self.format, chat)
            case PreferenceFormat():
                return PreferenceReader(self.format, chat, engine, self.framing)


def make_part(job: Job, part: Part, reader: ExampleReader, told: Told, *, limit: int | None = None) -> PartRecord:
    """Make the shards of ``part`` and write its record, last. ``limit``: examples that are taken at most.

    Raises ``BadRecordError`` for a record that can't be read, where that is the policy, and ``DataError`` for a file
    that changes meanwhile.
    """
    inputs = tuple(input_record(piece) for piece in part.pieces)
    bad = BadRecords(job.on_bad_record)
    splits = (TRAIN, VALIDATION) if part.split == TRAIN and job.held_out else (part.split,)
    sinks = {split: _Sink(_writer(job, part, split, reader), reader, job.batch_bytes) for split in splits}
    try:
        _fill(job, part, reader, bad, sinks, told, limit)
        shards = tuple(sink.close() for sink in sinks.values())
        check_unchanged(part.pieces)
    except BaseException:
        for sink in sinks.values():
            sink.discard()
        raise
    record = PartRecord(
        part=part.number, recipe=job.recipe(part.split), inputs=inputs, shards=shards, bad_records=bad.counts
    )
    if limit is None:  # one that is cut short depends on the parts before it, and is soon made again
        write_whole(record_file(job.root, part.number), encode_json(record))
    return record


def record_file(root: str, number: int) -> str:
    """Where the record of a part lies until there is a manifest."""
    return os.path.join(root, PART_RECORDS, f"part-{number:05d}.json")


def inputs_now(part: Part) -> tuple[InputRecord, ...]:
    """What is recorded of the input of ``part`` as it is now."""
    return tuple(input_record(piece) for piece in part.pieces)


def _fill(
    job: Job,
    part: Part,
    reader: ExampleReader,
    bad: BadRecords,
    sinks: dict[str, _Sink],
    told: Told,
    limit: int | None,
) -> None:
    done = taken = 0
    has_split = len(sinks) > 1
    for piece in part.pieces:
        consumed = 0
        for content, size, consumed, is_empty in reader.read(piece, bad):
            if limit is not None and taken >= limit:
                return
            taken += 1
            held = has_split and is_held_out(reader.key(content), job.held_out)
            if sinks[VALIDATION if held else part.split].add(content, size, is_empty=is_empty):
                told(done + consumed, sum(sink.tokens for sink in sinks.values()))
        done += consumed


def _writer(job: Job, part: Part, split: str, reader: ExampleReader) -> ShardWriter:
    metadata = {
        "marin.format": str(CACHE_FORMAT),
        "marin.engine": job.engine,
        "marin.tokenizer": job.identity.location,
        "marin.tokenizer_sha256": job.identity.sha256,
        "marin.vocab_size": str(job.identity.vocab_size),
        "marin.special_tokens": job.framing.policy,
        "marin.prefix": ",".join(map(str, job.framing.prefix)),
        "marin.suffix": ",".join(map(str, job.framing.suffix)),
    }
    return ShardWriter(
        job.root,
        f"{split}/part-{part.number:05d}.arrow",
        split=split,
        vocab_size=job.identity.vocab_size,
        metadata=metadata,
        has_mask=reader.has_mask,
    )


class _Sink:
    """Collects examples until they are worth a batch, then encodes and writes them."""

    def __init__(self, writer: ShardWriter, reader: ExampleReader, batch_bytes: int) -> None:
        self._writer, self._reader, self._batch_bytes = writer, reader, batch_bytes
        self._contents, self._sizes, self._size, self._empty = list[Any](), list[int](), 0, 0
        self.tokens = 0

    def add(self, content: Any, size: int, *, is_empty: bool) -> bool:
        """Whether a batch was written."""
        # A document without text would be a lone end-of-text token, which teaches nothing: counted, not kept.
        if is_empty:
            self._empty += 1
            return False
        if size > LARGE_BYTES and (pieces := self._reader.encode_long(content)) is not None:
            self._flush()
            tokens = self._writer.write_long(pieces, text_bytes=utf8_bytes(content))
            self.tokens += tokens
            self._empty += not tokens
            return True
        self._contents.append(content)
        self._sizes.append(size)
        self._size += size or 4 * len(content[0])
        if self._size < self._batch_bytes:
            return False
        self._flush()
        return True

    def close(self) -> ShardRecord:
        self._flush()
        return self._writer.close()

    def discard(self) -> None:
        self._writer.discard()

    def _flush(self) -> None:
        ids, lengths, mask, sizes = self._reader.encode(self._contents)
        sizes = np.array(self._sizes, np.int64) if sizes is None else sizes
        if len(lengths) and int(lengths.min()) == 0:
            # Of a policy that adds nothing, a text may have no ids, such as one that a normal form removes. Of a pair
            # neither is kept then: it would be taken for another's.
            whole = (lengths.reshape(-1, self._reader.documents) > 0).all(axis=1)
            kept = np.repeat(whole, self._reader.documents)
            self._empty += int(np.sum(~kept))
            ids, mask = ids[np.repeat(kept, lengths)], None if mask is None else mask[np.repeat(kept, lengths)]
            lengths, sizes = lengths[kept], sizes[whole]
        self._writer.write(ids, lengths, text_bytes=int(sizes.sum()), empty=self._empty, mask=mask)
        self.tokens += len(ids)
        self._contents, self._sizes, self._size, self._empty = [], [], 0, 0
