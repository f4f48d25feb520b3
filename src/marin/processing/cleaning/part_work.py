"""What one worker does: make the shard of a part, and later leave out of it what an earlier part has."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import BinaryIO, final

import msgspec

from marin.errors import DataError, DocumentFunctionError
from marin.processing.bad_records import BadRecordCount, BadRecords, merge_counts
from marin.processing.cleaning.document_set import Document, Drop
from marin.processing.cleaning.duplicates import RUN_DOCUMENTS, Comparison, digest_run, digests_file, duplicates_of
from marin.processing.cleaning.manifest import DocumentShard, PartRecord
from marin.processing.cleaning.reading import Found, read_found
from marin.processing.cleaning.shards import Row, ShardWriter, rows_in, without_rows
from marin.processing.cleaning.steps import DocumentInput, OnError
from marin.processing.cleaning.treatments import Treatment, document_digest
from marin.processing.durable import whole_file, write_whole
from marin.processing.tokenize.manifest import InputRecord, encode_json
from marin.processing.tokenize.parts import Part, check_unchanged, input_record
from marin.storage.faults import translated_faults

Told = Callable[[int], None]
"""Is told how many bytes of a part are read."""

_MOST_REASONS = 1000
"""So many reasons for dropping are counted. More are a number or a name that has got into them."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that decides the documents of a part besides its input, and where they are written.

    ``work``: the folder of what is needed only until the set is whole. ``digits``: those of the number in a file name.
    """

    root: str
    work: str
    digits: int
    documents: DocumentInput
    keep: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    treatment: Treatment
    on_error: OnError
    deduplicate: bool
    recipe: str

    def shard_file(self, part: int) -> str:
        """The name of the shard of a part."""
        return f"part-{part:0{self.digits}d}.parquet"


def record_file(job: Job, kind: str, part: int) -> str:
    """Where the record of a part lies until there is a manifest. ``kind``: ``"made"``, or ``"finished"``."""
    return os.path.join(job.work, f"{kind}-{part:05d}.json")


def inputs_now(part: Part) -> tuple[InputRecord, ...]:
    """What is recorded of the input of ``part`` as it is now."""
    return tuple(input_record(piece) for piece in part.pieces)


def is_whole(job: Job, shard: DocumentShard | None) -> bool:
    """Whether the file of a shard is there in full."""
    if shard is None:
        return True
    path = os.path.join(job.root, shard.file)
    return os.path.isfile(path) and os.path.getsize(path) == shard.bytes


def make_part(job: Job, part: Part, told: Told) -> PartRecord:
    """Make the shard of ``part``, and its digests if the job compares them, and write its record, last.

    Raises ``BadRecordError`` or ``DocumentFunctionError`` where that is the policy, and ``DataError`` for a file that
    changes meanwhile.
    """
    inputs = inputs_now(part)
    writer = ShardWriter(job.root, job.shard_file(part.number), job.columns)
    try:
        with _digests_of(job, part.number) as digests:
            counts = _Counts(job, writer, digests)
            bad = [_read(job, part, number, counts, told) for number in range(len(part.pieces))]
            check_unchanged(part.pieces)
            shard = writer.close()
            runs, runs_sha256 = digests.close() if digests else ((), "")
    except BaseException:
        writer.discard()
        raise
    record = PartRecord(
        part=part.number,
        recipe=job.recipe,
        inputs=inputs,
        shard=shard,
        documents=counts.documents,
        duplicates=counts.duplicates,
        empty=counts.empty,
        dropped=dict(sorted(counts.dropped.items())),
        filled=dict(counts.filled),
        failed=tuple(counts.failed.values()),
        bad_records=merge_counts(each.counts for each in bad),
        runs=runs,
        runs_sha256=runs_sha256,
    )
    write_whole(record_file(job, "made", part.number), encode_json(record))
    return record


def finish_part(job: Job, part: Part, record: PartRecord, comparison: Comparison, told: Told) -> PartRecord:
    """Leave the documents out that an earlier part has, and write the record of what is left, last.

    A shard that is not as ``record`` says was finished by an attempt that did not come to say so: it is made again.
    """
    recipe = finished_recipe(job, comparison)
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        with open(record_file(job, "finished", part.number), "rb") as stream:
            finished = msgspec.json.decode(stream.read(), type=PartRecord)
        if finished.recipe == recipe and finished.inputs == record.inputs and is_whole(job, finished.shard):
            return finished
    rows = duplicates_of(comparison, part.number)
    shard = record.shard
    if not _is_as_made(job, shard) and make_part(job, part, told).runs_sha256 != record.runs_sha256:
        raise DataError(
            f"the input of {job.shard_file(part.number)} changed while it was read: run again when nobody writes to it"
        )
    if shard is not None and len(rows):
        writer = ShardWriter(job.root, shard.file, job.columns)
        try:
            without_rows(os.path.join(job.root, shard.file), rows, writer)
            shard = writer.close()
        except BaseException:
            writer.discard()
            raise
    # The digests end with the work: nothing is said of them.
    counts = {"duplicates": record.duplicates + len(rows), "runs": (), "runs_sha256": ""}
    finished = replace(record, recipe=recipe, shard=shard, **counts)
    write_whole(record_file(job, "finished", part.number), encode_json(finished))
    return finished


def _is_as_made(job: Job, shard: DocumentShard | None) -> bool:
    # By the number of rows too: what is left without some of them could be as long.
    return shard is None or (is_whole(job, shard) and rows_in(os.path.join(job.root, shard.file)) == shard.documents)


def finished_recipe(job: Job, comparison: Comparison) -> str:
    """Digest of what decides which documents of a part are left, besides its input."""
    return hashlib.sha256(f"{job.recipe} {comparison.name}".encode()).hexdigest()


def _read(job: Job, part: Part, number: int, counts: _Counts, told: Told) -> BadRecords:
    piece, bad = part.pieces[number], BadRecords(job.documents.on_bad_record)
    before = sum(each.file.size for each in part.pieces[:number] if each.stop is None)
    for place, found in enumerate(read_found(piece, job.documents, job.keep, bad)):
        counts.add(found)
        if place % 256 == 0:
            told(before + found.consumed)
        del found
    return bad


@final
class _Counts:
    """Takes documents one by one, counts what becomes of each, and hands those that stay to the writer."""

    def __init__(self, job: Job, writer: ShardWriter, digests: _Digests | None) -> None:
        self._job, self._writer, self._digests = job, writer, digests
        self._names = tuple(name for name, _ in job.keep)
        self._treatment = None if job.treatment.is_identity else job.treatment
        self.documents = self.duplicates = self.empty = 0
        self.dropped, self.filled = Counter[str](), Counter[str]()
        self.failed = dict[str, BadRecordCount]()

    def add(self, found: Found) -> None:
        self.documents += 1
        for name, value in zip(self._names, found.fields, strict=True):
            self.filled[name] += value is not None
        if not found.text:
            self.empty += 1
            return
        text = found.text.encode()
        digest = document_digest(text)
        if self._treatment is not None:
            treated = self._treated(self._treatment, found, digest)
            if treated is None:
                return
            if treated != found.text:
                text = treated.encode()
                digest = document_digest(text)
        if not text:
            self.empty += 1
        elif self._digests is not None and not self._digests.is_new(digest):
            self.duplicates += 1
        else:
            self._writer.add(Row(digest, text, found.source, found.fields))

    def _treated(self, treatment: Treatment, found: Found, digest: bytes) -> str | None:
        """The text that the document has from now on; ``None`` if it is left out, which is counted."""
        fields = dict(zip(self._names, found.fields, strict=True))
        document = Document(digest.hex(), found.text, found.source, fields)
        try:
            answer = treatment.treat(document)
        except DocumentFunctionError as fault:
            self._fail(fault)
            return None
        if isinstance(answer, Drop):
            self._drop(answer.reason, document)
            return None
        return answer

    def _fail(self, fault: DocumentFunctionError) -> None:
        if self._job.on_error == "error":
            raise DocumentFunctionError(
                f"{fault}; mend the function, or leave such documents out with on_error='skip'", fault.reason
            ) from fault.__cause__
        known = self.failed.get(fault.reason)
        count = 1 if known is None else known.count + 1
        example = str(fault)[:500] if known is None else known.example
        self.failed[fault.reason] = BadRecordCount(reason=fault.reason, count=count, example=example)

    def _drop(self, reason: str, document: Document) -> None:
        self.dropped[reason] += 1
        if len(self.dropped) > _MOST_REASONS:
            raise DocumentFunctionError(
                f"document {document.id} ({document.source}): {self._job.treatment.called} drops it for the "
                f"{_MOST_REASONS + 1:,}th reason, {reason!r:.80}: give Drop() one of a few reasons, which are counted",
                "too many reasons",
            )


@final
class _Digests:
    """Writes the digests of the documents that stay in sorted runs, and finds equal ones within a run."""

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self._path, self._stream, self._sha256 = path, stream, hashlib.sha256()
        self._held, self._seen = list[bytes](), set[bytes]()
        self._lengths = list[int]()

    def is_new(self, digest: bytes) -> bool:
        """Whether the run has no such document yet. It has now."""
        if digest in self._seen:
            return False
        self._seen.add(digest)
        self._held.append(digest)
        if len(self._held) >= RUN_DOCUMENTS:
            self._flush()
        return True

    def close(self) -> tuple[tuple[int, ...], str]:
        """The lengths of the runs, and the digest of all of them."""
        self._flush()
        return tuple(self._lengths), self._sha256.hexdigest()

    def _flush(self) -> None:
        if self._held:
            data = digest_run(self._held, sum(self._lengths))
            with translated_faults(self._path, writing=True):
                self._stream.write(data)
            self._sha256.update(data)
            self._lengths.append(len(self._held))
            self._held, self._seen = [], set()


@contextlib.contextmanager
def _digests_of(job: Job, part: int) -> Generator[_Digests | None]:
    if not job.deduplicate:
        yield None
        return
    path = digests_file(job.work, part)
    with whole_file(path) as scratch, open(scratch, "wb") as stream:
        yield _Digests(path, stream)
        stream.flush()
