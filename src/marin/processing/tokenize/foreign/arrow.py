"""Hugging Face datasets as ``save_to_disk`` writes them, and other Arrow files with a column ``input_ids``: mapped."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from marin.errors import DataError
from marin.processing.tokenize.foreign.flat import AnyInts, Chunk, MappedChunk, SortedEnds
from marin.processing.tokenize.foreign.layout import Evidence, Place
from marin.processing.tokenize.foreign.list_columns import (
    COLUMN,
    check_type,
    check_unmasked,
    flat_column,
    has_column,
    masking_columns,
)
from marin.processing.tokenize.manifest import MANIFEST_FILE
from marin.processing.tokenize.stream import Ints

STATE_FILE = "state.json"
_FILE_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_OUR_METADATA = b"marin."


@dataclass(frozen=True, slots=True)
class ArrowLayout:
    """Arrow files with a list of ids per document, mapped."""

    name: str = "arrow"
    looks_for: str = "X.arrow with a column input_ids (Hugging Face datasets)"

    def recognise(self, place: Place) -> Evidence | None:
        names = _named_by_state(place)
        if not any(name in place.names and has_column(place.absolute(name), _arrow_schema) for name in names):
            return None
        return Evidence(because=f"{names[0]} has a column {COLUMN}", names=tuple(names))

    def open(self, files: Sequence[str]) -> list[Chunk]:
        return [chunk for file in files for chunk in _arrow_chunks(file)]

    def tokenizer(self, files: Sequence[str]) -> str | None:
        del files
        return None


def _named_by_state(place: Place) -> list[str]:
    """Arrow files in reading order. Where a ``state.json`` lists files, others of its folder are left-overs of maps."""
    names = list[str]()
    folders = sorted({name.rpartition("/")[0] for name in place.ending(".arrow")})
    stated = {name.rpartition("/")[0] for name in place.names if name.rpartition("/")[2] == STATE_FILE}
    for folder in sorted({*folders, *stated}):
        inside = f"{folder}/" if folder else ""
        listed = _data_files(place.absolute(inside + STATE_FILE)) if folder in stated and place.lone is None else None
        if listed is not None:
            names.extend(inside + file for file in listed)
        else:
            names.extend(name for name in place.ending(".arrow") if name.rpartition("/")[0] == folder)
    return names


def _data_files(state: str) -> list[str] | None:
    """The files that a ``state.json`` lists; ``None``: it is another program's."""
    with open(state, "rb") as file:
        data = file.read()
    try:
        return [str(entry["filename"]) for entry in json.loads(data)["_data_files"]]
    except (KeyError, TypeError):
        return None
    except ValueError as fault:
        if not any(name.endswith(".arrow") for name in os.listdir(os.path.dirname(state))):
            return None
        raise DataError(
            f"{state}, which lists the files of its folder in their order, can't be read ({fault}): copy it anew, or "
            "remove it if another program wrote it"
        ) from fault


def _arrow_schema(file: str) -> Any:
    source = pa.memory_map(file)
    return pa.ipc.open_file(source).schema if _is_file_format(file) else pa.ipc.open_stream(source).schema


def _is_file_format(file: str) -> bool:
    with open(file, "rb") as opened:
        return opened.read(len(_FILE_MAGIC)) == _FILE_MAGIC


def _arrow_chunks(file: str) -> list[Chunk]:
    if not os.path.exists(file):
        raise DataError(f"{file} is missing, which {STATE_FILE} beside it names: copy it anew")
    try:
        source = pa.memory_map(file)
        if _is_file_format(file):
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        else:
            _check_ended(file)
            batches = list(pa.ipc.open_stream(source))
    except (pa.ArrowInvalid, OSError) as fault:
        raise DataError(f"{file} can't be read as Arrow ({fault}): it is cut off or damaged; copy it anew") from fault
    for batch in batches[:1]:
        check_type(file, batch.schema)
        _check_foreign(file, batch.schema)
    # Such batches are in memory, all of them, and a large file would not fit there.
    if any(_compressed(source, batch) for batch in batches[:1]):
        raise DataError(f"{file} is compressed, and can't be mapped: write it without compression, or as Parquet")
    return [_mapped_chunk(file, batch) for batch in batches if batch.num_rows]


def _check_foreign(file: str, schema: Any) -> None:
    if any(key.startswith(_OUR_METADATA) for key in schema.metadata or ()):
        raise DataError(
            f"{file} is part of a token cache of Marin whose {MANIFEST_FILE} is missing: nobody knows whether it is "
            "whole. Give the folder of the whole cache, or build it again"
        )


def _check_ended(file: str) -> None:
    # A stream that was cut between two batches reads without a fault.
    with open(file, "rb") as opened:
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - len(_END_OF_STREAM)))
        if opened.read() != _END_OF_STREAM:
            raise DataError(f"{file} has no end-of-stream mark: it is cut off, or still being written; copy it anew")


def _compressed(source: Any, batch: Any) -> bool:
    source.seek(0)
    start = source.read_buffer(source.size()).address
    buffers = [buffer for buffer in batch.column(COLUMN).buffers() if buffer is not None and buffer.size]
    return any(not start <= buffer.address < start + source.size() for buffer in buffers)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of a batch, whose ``check`` looks at the columns beside the ids too."""

    file: str
    batch: Any
    offsets: AnyInts

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def between(self, start: int, stop: int) -> Ints:
        return self._sorted.between(start, stop)

    def check(self) -> None:
        self._sorted.check()
        for name in masking_columns(self.batch.schema):
            check_unmasked(self.file, name, self.batch.column(name), self.offsets)

    @property
    def _sorted(self) -> SortedEnds:
        return SortedEnds(self.offsets[1:], self.file, int(self.offsets[0]))


def _mapped_chunk(file: str, batch: Any) -> Chunk:
    ids, offsets = flat_column(file, batch.column(COLUMN))
    return MappedChunk(ids, _Ends(file, batch, offsets))
