"""The tokenize step: documents in, token cache out.

The input is cut into parts, groups of consecutive files. A part is read, encoded and written on its own, and its record
is written last, so that an attempt which goes on after a kill redoes only the parts without a record. The manifest
gathers the records and is what makes the folder a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import msgspec

from marin.errors import ConfigurationError, DataError
from marin.execution.progress import report
from marin.processing.documents import is_held_out, read_documents
from marin.processing.durable import write_whole
from marin.processing.input_files import InputFile, file_sha256
from marin.processing.inputs import Inputs, check_not_local, open_inputs
from marin.processing.tokenize.cache import ShardWriter, check_cache, token_type
from marin.processing.tokenize.encoder import Encoder, load_encoder
from marin.processing.tokenize.manifest import (
    CACHE_FORMAT,
    MANIFEST_FILE,
    TOKENIZER_FILE,
    TRAIN,
    VALIDATION,
    InputRecord,
    Manifest,
    PartRecord,
    ShardRecord,
    encode_json,
    read_manifest,
    write_manifest,
)
from marin.processing.tokenize.tokenize import TokenizeConfig, TokenizedCache

PART_RECORDS = "parts"
"""Folder of the records of finished parts, for as long as there is no manifest."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    number: int
    files: tuple[InputFile, ...]
    split: str

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def tokenize(config: TokenizeConfig) -> TokenizedCache:
    """Make the token cache that ``config`` asks for, or finish one that an earlier attempt began.

    Raises ``DataError`` if a split has no documents and ``BadRecordError`` for one that can't be read.
    """
    check_not_local(config.source, config.validation)
    encoder = load_encoder(config.tokenizer, eos_token=config.eos_token)
    os.makedirs(config.output_path, exist_ok=True)
    with contextlib.ExitStack() as stack:
        train = stack.enter_context(open_inputs(config.source, scratch=config.output_path))
        sources, validation = [train.description], None
        if config.validation is not None:
            validation = stack.enter_context(open_inputs(config.validation, scratch=config.output_path))
            sources.append(validation.description)
        parts = _plan(train, validation, config.part_bytes)
        records = _build_parts(parts, config, encoder)
    manifest = Manifest(
        format=CACHE_FORMAT,
        dtype=token_type(encoder.identity.vocab_size),
        tokenizer=encoder.identity,
        engine=encoder.engine,
        parts=tuple(records),
    )
    _check_splits(manifest, config, sources)
    return _commit(manifest, config, encoder, tuple(sources))


def _plan(train: Inputs, validation: Inputs | None, part_bytes: int) -> list[_Part]:
    """Parts of about ``part_bytes``; a file that is held out for validation is not trained on."""
    held = {os.path.realpath(file.path) for file in validation.files} if validation else set[str]()
    kept = [file for file in train.files if os.path.realpath(file.path) not in held]
    if not kept:
        raise DataError(f"every file of {train.description} is also a validation file: nothing is left to train on")
    parts = [*_group(kept, part_bytes, TRAIN), *_group(validation.files if validation else (), part_bytes, VALIDATION)]
    return [_Part(number=number, files=files, split=split) for number, (files, split) in enumerate(parts)]


def _group(files: Sequence[InputFile], part_bytes: int, split: str) -> Iterator[tuple[tuple[InputFile, ...], str]]:
    group, size = list[InputFile](), 0
    for file in files:
        if group and size + file.size > part_bytes:
            yield tuple(group), split
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield tuple(group), split


def _build_parts(parts: Sequence[_Part], config: TokenizeConfig, encoder: Encoder) -> list[PartRecord]:
    os.makedirs(os.path.join(config.output_path, PART_RECORDS), exist_ok=True)
    progress = _Progress(total=sum(part.size for part in parts))
    earlier = _earlier_records(config.output_path)
    records = list[PartRecord]()
    for part in parts:
        recipe = _recipe(config, encoder, part.split)
        inputs = tuple(_input_record(file) for file in part.files)
        record = earlier.get(part.number)
        if record is None or (record.recipe, record.inputs) != (recipe, inputs):
            shards = _build_part(part, config, encoder, progress)
            _check_unchanged(part, inputs)
            record = PartRecord(part=part.number, recipe=recipe, inputs=inputs, shards=shards)
            write_whole(_record_file(config.output_path, part), encode_json(record))
        progress.end_part(part, record)
        records.append(record)
    return records


def _recipe(config: TokenizeConfig, encoder: Encoder, split: str) -> str:
    """Digest of what decides the tokens of a part, besides its files."""
    facts = {
        "format": CACHE_FORMAT,
        "engine": encoder.engine,
        "tokenizer": asdict(encoder.identity),
        "text_key": config.text_key,
        "held_out": config.held_out,
        "split": split,
    }
    return hashlib.sha256(encode_json(facts)).hexdigest()


def _earlier_records(root: str) -> dict[int, PartRecord]:
    """The parts that an earlier attempt finished and whose files are whole, by number."""
    folder, records = os.path.join(root, PART_RECORDS), list[PartRecord]()
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as stream, contextlib.suppress(msgspec.DecodeError):
            records.append(msgspec.json.decode(stream.read(), type=PartRecord))
    # An attempt that was killed at its very end has a manifest, and may have removed the records.
    with contextlib.suppress(ConfigurationError, DataError):
        records.extend(read_manifest(root).parts)
    return {record.part: record for record in records if _is_whole(root, record)}


def _is_whole(root: str, record: PartRecord) -> bool:
    files = [(os.path.join(root, shard.file), shard.bytes) for shard in record.shards]
    return all(os.path.isfile(file) and os.path.getsize(file) == size for file, size in files)


def _record_file(root: str, part: _Part) -> str:
    return os.path.join(root, PART_RECORDS, f"part-{part.number:05d}.json")


def _input_record(file: InputFile) -> InputRecord:
    return InputRecord(name=file.name, bytes=file.size, sha256=file_sha256(file.path))


def _check_unchanged(part: _Part, inputs: tuple[InputRecord, ...]) -> None:
    for file, before in zip(part.files, inputs, strict=True):
        if file_sha256(file.path) != before.sha256:
            raise DataError(f"{file.shown} changed while it was read: run again when nobody writes to it")


def _build_part(part: _Part, config: TokenizeConfig, encoder: Encoder, progress: _Progress) -> tuple[ShardRecord, ...]:
    splits = (TRAIN, VALIDATION) if part.split == TRAIN and config.held_out else (part.split,)
    metadata = {
        "marin.format": str(CACHE_FORMAT),
        "marin.engine": encoder.engine,
        "marin.tokenizer_sha256": encoder.identity.sha256,
        "marin.vocab_size": str(encoder.identity.vocab_size),
        "marin.eos_id": str(encoder.identity.eos_id),
    }
    sinks = {
        split: _Sink(
            ShardWriter(
                config.output_path,
                f"{split}/part-{part.number:05d}.arrow",
                split=split,
                vocab_size=encoder.identity.vocab_size,
                metadata=metadata,
            ),
            encoder,
            config.batch_bytes,
        )
        for split in splits
    }
    done = 0
    for file in part.files:
        for text, consumed in read_documents(file, config.text_key):
            held = len(splits) > 1 and is_held_out(text, config.held_out)
            sinks[VALIDATION if held else part.split].add(text)
            progress.within_part(done + consumed, sum(sink.tokens for sink in sinks.values()))
        done += file.size
    return tuple(sink.close() for sink in sinks.values())


class _Sink:
    """Collects texts until they are worth a batch, then encodes and writes them."""

    def __init__(self, writer: ShardWriter, encoder: Encoder, batch_bytes: int) -> None:
        self._writer, self._encoder, self._batch_bytes = writer, encoder, batch_bytes
        self._texts, self._size, self._empty = list[str](), 0, 0
        self.tokens = 0

    def add(self, text: str) -> None:
        # A document without text would be a lone end-of-text token, which teaches nothing: counted, not kept.
        if not text:
            self._empty += 1
            return
        self._texts.append(text)
        self._size += len(text.encode())
        if self._size >= self._batch_bytes:
            self._flush()

    def close(self) -> ShardRecord:
        self._flush()
        return self._writer.close()

    def _flush(self) -> None:
        ids, lengths = self._encoder.encode(self._texts)
        self._writer.write(ids, lengths, text_bytes=self._size, empty=self._empty)
        self.tokens += len(ids)
        self._texts, self._size, self._empty = [], 0, 0


@dataclass(slots=True)
class _Progress:
    """Input bytes done of ``total``, and the tokens made of them."""

    total: int
    done: int = 0
    tokens: int = 0

    def within_part(self, consumed: int, tokens: int) -> None:
        self._report(self.done + consumed, self.tokens + tokens)

    def end_part(self, part: _Part, record: PartRecord) -> None:
        self.done += part.size
        self.tokens += sum(shard.tokens for shard in record.shards)
        self._report(self.done, self.tokens)

    def _report(self, done: int, tokens: int) -> None:
        report(done / 1e6, self.total / 1e6, "MB", f"{tokens / 1e6:.1f}M tokens")


def _check_splits(manifest: Manifest, config: TokenizeConfig, sources: Sequence[str]) -> None:
    wanted = [TRAIN, VALIDATION] if config.held_out or config.validation is not None else [TRAIN]
    for split in wanted:
        if split not in manifest.splits:
            raise DataError(f"split {split!r} has no documents: {_why_empty(split, manifest, config, sources)}")


def _why_empty(split: str, manifest: Manifest, config: TokenizeConfig, sources: Sequence[str]) -> str:
    source = sources[-1] if split == VALIDATION else sources[0]
    other = VALIDATION if split == TRAIN else TRAIN
    documents = sum(shard.documents for shard in manifest.shards(other))
    if not config.held_out or not documents:
        # With held_out an empty text may have gone to either split.
        shards = [*manifest.shards(split), *(manifest.shards(other) if config.held_out else ())]
        empty = sum(shard.empty_documents for shard in shards)
        left_out = f" but {empty} empty ones" if empty else ""
        return f"there are none{left_out} in {source}; check the source"
    chosen = (
        f"of {documents:,} document{'' if documents == 1 else 's'} in {source}, held_out={config.held_out} holds out"
    )
    if split == TRAIN:
        return f"{chosen} all for validation; make held_out smaller, such as 0.01"
    return f"{chosen} none; make held_out larger, or give validation= files"


def _commit(manifest: Manifest, config: TokenizeConfig, encoder: Encoder, sources: tuple[str, ...]) -> TokenizedCache:
    """Tidy up, write the manifest, and read everything back as the trainer will."""
    root = config.output_path
    if encoder.file is not None:
        write_whole(os.path.join(root, TOKENIZER_FILE), encoder.file)
    kept = {shard.file for part in manifest.parts for shard in part.shards}
    for split in (TRAIN, VALIDATION):
        for name in os.listdir(os.path.join(root, split)) if os.path.isdir(os.path.join(root, split)) else ():
            if f"{split}/{name}" not in kept:
                os.unlink(os.path.join(root, split, name))
    write_manifest(root, manifest)
    try:
        check_cache(root)
    except DataError:
        # Damaged on the disk since it was written: what is left must not be taken for finished work again.
        os.unlink(os.path.join(root, MANIFEST_FILE))
        shutil.rmtree(os.path.join(root, PART_RECORDS))
        raise
    shutil.rmtree(os.path.join(root, PART_RECORDS))
    return TokenizedCache.from_manifest(manifest, encoder.identity, sources=sources)
