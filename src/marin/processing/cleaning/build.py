"""The steps that prepare text: documents of any source in, Parquet shards of documents out.

The input is cut into parts. Each is read, treated and written on its own, by one of several worker processes, and its
record is written last, so that an attempt which goes on after a kill redoes only the parts without a record. Equal
documents of different parts are then found by comparing digests, bucket by bucket, and taken out of the shards. The
manifest gathers the records and is what makes the folder a set of documents.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from marin.errors import ConfigurationError, DataError, DocumentFunctionError
from marin.execution.progress import report
from marin.executors.machine import count_cpus
from marin.processing.bad_records import BadRecordCount, check_fraction, merge_counts
from marin.processing.cleaning.crew import Crew, open_crew
from marin.processing.cleaning.document_set import OWN_COLUMNS, DocumentSet
from marin.processing.cleaning.duplicates import Comparison, digests_bytes, digests_file, find_duplicates
from marin.processing.cleaning.manifest import (
    FORMAT,
    DocumentManifest,
    PartRecord,
    read_manifest,
    write_manifest,
)
from marin.processing.cleaning.part_work import Job, Told, finish_part, inputs_now, is_whole, make_part, record_file
from marin.processing.cleaning.reading import kept_columns
from marin.processing.cleaning.steps import DocumentFunction, DocumentInput, FilterConfig, NormalizeConfig
from marin.processing.cleaning.treatments import FunctionTreatment, Normalization, Treatment
from marin.processing.inputs import Inputs, check_not_local, open_inputs
from marin.processing.tokenize.manifest import encode_json
from marin.processing.tokenize.parts import Part, plan_parts

WORK_FOLDER = "work"
"""Folder of records and digests, for as long as there is no manifest."""

_CREW_BYTES = 16_000_000
"""Less input is not worth starting worker processes."""

Config: TypeAlias = NormalizeConfig | FilterConfig


def normalize(config: NormalizeConfig) -> DocumentSet:
    """Make the documents that ``config`` asks for, or finish what an earlier attempt began.

    Raises ``DataError`` if no document is left and ``BadRecordError`` for one that can't be read.
    """
    treatment = Normalization(unicode_form=config.unicode_form, line_ends=config.line_ends)
    return _prepare(config, treatment, deduplicate=config.deduplicate)


def filter_documents(config: FilterConfig, function: DocumentFunction) -> DocumentSet:
    """Make the documents that ``function`` keeps, or finish what an earlier attempt with the same code began.

    Raises ``DocumentFunctionError`` for the first document on which it fails, unless such are to be left out, and what
    ``normalize`` raises.
    """
    return _prepare(config, FunctionTreatment(function), deduplicate=False)


def _prepare(config: Config, treatment: Treatment, *, deduplicate: bool) -> DocumentSet:
    documents = config.documents
    check_not_local(documents.source)
    work = os.path.join(config.output_path, WORK_FOLDER)
    os.makedirs(work, exist_ok=True)
    with open_inputs(documents.source, scratch=config.output_path) as inputs:
        parts = plan_parts(inputs, None, config.shard_bytes)
        job = _job(config, inputs, parts, treatment, deduplicate=deduplicate)
        records = _finished(job, parts) or _run(config, job, parts, inputs)
    manifest = DocumentManifest(format=FORMAT, recipe=job.recipe, columns=job.columns, parts=tuple(records))
    if not manifest.shards:
        raise DataError(f"no document is left: {_why_empty(records, inputs.description, treatment.called)}")
    return _commit(job, manifest, inputs.description)


def _run(config: Config, job: Job, parts: Sequence[Part], inputs: Inputs) -> list[PartRecord]:
    size = sum(part.size for part in parts)
    workers = min(config.workers or count_cpus(), len(parts)) if size >= _CREW_BYTES else 1
    with open_crew(job, workers) as crew:
        records = _make(job, parts, crew)
        _check_failures(config.documents, records, inputs.description, job.treatment.called)
        _check_kept(config.documents, records, inputs.description)
        return _without_duplicates(job, parts, records, crew) if job.deduplicate else records


def _finished(job: Job, parts: Sequence[Part]) -> list[PartRecord] | None:
    """All parts, of an attempt that was killed at its very end: it has a manifest, and has removed records."""
    try:
        manifest = read_manifest(job.root)
    except (ConfigurationError, DataError):
        return None
    is_ours = manifest.recipe == job.recipe and len(manifest.parts) == len(parts)
    whole = is_ours and all(is_whole(job, shard) for shard in manifest.shards)
    same = whole and all(record.inputs == inputs_now(part) for part, record in zip(parts, manifest.parts, strict=True))
    return list(manifest.parts) if same else None


def _job(config: Config, inputs: Inputs, parts: Sequence[Part], treatment: Treatment, *, deduplicate: bool) -> Job:
    documents = config.documents
    keep = kept_columns(documents, inputs)
    on_error = config.on_error if isinstance(config, FilterConfig) else "error"
    facts = {
        "format": FORMAT,
        "text_key": documents.text_key,
        "is_document_set": documents.is_document_set,
        "keep": keep,
        "on_bad_record": documents.on_bad_record,
        "treatment": [type(treatment).__name__, treatment.facts()],
        "on_error": on_error,
        "deduplicate": deduplicate,
    }
    return Job(
        root=config.output_path,
        work=os.path.join(config.output_path, WORK_FOLDER),
        # Of one length, so that their order by name is reading order.
        digits=max(5, len(str(len(parts) - 1))),
        documents=documents,
        keep=keep,
        columns=(*OWN_COLUMNS, *(name for name, _ in keep)),
        treatment=treatment,
        on_error=on_error,
        deduplicate=deduplicate,
        recipe=hashlib.sha256(encode_json(facts)).hexdigest(),
    )


def _make(job: Job, parts: Sequence[Part], crew: Crew) -> list[PartRecord]:
    """The records of all parts, in their order. The largest are begun first."""
    earlier = _earlier(job, parts)
    total, done, kept = sum(part.size for part in parts), 0, 0
    missing = sorted((part for part in parts if part.number not in earlier), key=lambda part: -part.size)

    def ended(part: Part, record: PartRecord) -> None:
        nonlocal done, kept
        done += part.size
        kept += record.shard.documents if record.shard else 0
        told(0)

    def told(read: int) -> None:
        report(min(done + read, total) / 1e6, total / 1e6, "MB", f"{kept:,} documents")

    for part in parts:
        if part.number in earlier:
            ended(part, earlier[part.number])
    made = crew.each(
        make_part, [(part,) for part in missing], lambda place, record: ended(missing[place], record), told
    )
    found = earlier | {record.part: record for record in made}
    return [found[part.number] for part in parts]


def _earlier(job: Job, parts: Sequence[Part]) -> dict[int, PartRecord]:
    """The parts that an earlier attempt has made, by the same recipe and from the same input.

    Of shards that are to be compared the digests count: who takes documents out looks whether the file is as made.
    """
    found = dict[int, PartRecord]()
    for part in parts:
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            with open(record_file(job, "made", part.number), "rb") as stream:
                record = msgspec.json.decode(stream.read(), type=PartRecord)
            whole = _has_digests(job, record) if job.deduplicate else is_whole(job, record.shard)
            if record.recipe == job.recipe and whole and record.inputs == inputs_now(part):
                found[part.number] = record
    return found


def _has_digests(job: Job, record: PartRecord) -> bool:
    path = digests_file(job.work, record.part)
    return os.path.isfile(path) and os.path.getsize(path) == digests_bytes(record.runs)


def _without_duplicates(job: Job, parts: Sequence[Part], records: Sequence[PartRecord], crew: Crew) -> list[PartRecord]:
    """The records of all parts once each document that is equal to an earlier one is taken out of them."""
    comparison = Comparison.of(job.work, records)
    searched = duplicates = finished = 0

    def told(_: int) -> None:
        report(searched, comparison.buckets, "buckets", "looking for duplicates")

    def bucket_ended(_: int, found: int) -> None:
        nonlocal searched, duplicates
        searched, duplicates = searched + 1, duplicates + found
        told(0)

    def part_told(_: int) -> None:
        report(finished, len(parts), "shards", f"taking {duplicates:,} duplicates out")

    def part_ended(place: int, record: PartRecord) -> None:
        nonlocal finished
        del place, record
        finished += 1
        part_told(0)

    told(0)
    crew.each(_search, [(comparison, bucket) for bucket in range(comparison.buckets)], bucket_ended, told)
    tasks = [(part, record, comparison) for part, record in zip(parts, records, strict=True)]
    return crew.each(finish_part, tasks, part_ended, part_told)


def _search(job: Job, comparison: Comparison, bucket: int, told: Told) -> int:
    del job, told
    return find_duplicates(comparison, bucket)


def _check_failures(documents: DocumentInput, records: Sequence[PartRecord], source: str, called: str) -> None:
    """Raise if more records can't be read, or more documents are such that the function fails, than is allowed."""
    good = sum(record.documents for record in records)
    check_fraction(merge_counts(record.bad_records for record in records), good, documents.max_bad_fraction, source)
    failed = merge_counts(record.failed for record in records)
    count = sum(each.count for each in failed)
    if count > documents.max_bad_fraction * good:
        raise DocumentFunctionError(
            f"{called} failed on {count:,} of {good:,} documents of {source}, more than "
            f"max_bad_fraction={documents.max_bad_fraction:g}: {_listed(failed)}. Mend it, or allow more "
            "with max_bad_fraction="
        )


def _check_kept(documents: DocumentInput, records: Sequence[PartRecord], source: str) -> None:
    """Raise ``DataError`` for a field that no document has: a slip in its name would make a column of nulls."""
    if any(record.documents for record in records):
        for column, key in documents.keep:
            if not any(record.filled.get(column) for record in records):
                raise DataError(f"no document of {source} has a field {key!r}: correct keep=, or leave it out there")


def _why_empty(records: Sequence[PartRecord], source: str, called: str) -> str:
    read, empty = (sum(getattr(record, name) for record in records) for name in ("documents", "empty"))
    if not read and (bad := merge_counts(record.bad_records for record in records)):
        return f"what there is in {source} can't be read: {_listed(bad)}"
    dropped = Counter[str]()
    for record in records:
        dropped.update(record.dropped)
    did = list[str]()
    if dropped:
        kinds = [f"{count:,} {reason!r}" for reason, count in sorted(dropped.items())]
        did.append(f"drops {dropped.total():,} ({', '.join(kinds[:10])})")
    if failed := merge_counts(record.failed for record in records):
        did.append(f"failed on {sum(each.count for each in failed):,} ({_listed(failed)})")
    if not did:
        left_out = f" but {empty:,} empty ones" if empty else ""
        return f"there are none{left_out} in {source}; check the source, and what {called} makes of a text"
    were_empty = f", {empty:,} of them empty" if empty else ""
    return f"of {read:,} in {source}{were_empty}, {called} {' and '.join(did)}; check it"


def _listed(counts: Sequence[BadRecordCount]) -> str:
    return "; ".join(f"{each.count:,} {each.reason} (such as {each.example})" for each in counts)


def _commit(job: Job, manifest: DocumentManifest, source: str) -> DocumentSet:
    """Write the manifest, and remove what is not in it."""
    kept = {shard.file for shard in manifest.shards}
    for name in os.listdir(job.root):
        if name.startswith("part-") and name not in kept:
            os.unlink(os.path.join(job.root, name))
    write_manifest(job.root, manifest)
    shutil.rmtree(job.work)
    return DocumentSet.from_manifest(manifest, sources=(source,))
