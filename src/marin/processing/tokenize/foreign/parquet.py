"""Parquet files with a column ``input_ids``. They are compressed: a row group is read when one of its tokens is asked
for, and the last few are kept.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marin.errors import DataError
from marin.processing.tokenize.foreign.flat import AnyInts, Chunk, SortedEnds
from marin.processing.tokenize.foreign.layout import Evidence, Place
from marin.processing.tokenize.foreign.list_columns import (
    COLUMN,
    check_type,
    check_unmasked,
    flat_column,
    has_column,
    masking_columns,
)
from marin.processing.tokenize.stream import Ints

_KEPT_ROW_GROUPS = 4


@dataclass(frozen=True, slots=True)
class ParquetLayout:
    """Parquet files with a list of ids per document, read by row group."""

    name: str = "parquet"
    looks_for: str = "X.parquet with a column input_ids (Hugging Face datasets)"

    def recognise(self, place: Place) -> Evidence | None:
        names = place.ending(".parquet")
        if not any(has_column(place.absolute(name), pq.read_schema) for name in names):
            return None
        return Evidence(because=f"{names[0]} has a column {COLUMN}", names=names)

    def open(self, files: Sequence[str]) -> list[Chunk]:
        return [chunk for file in files for chunk in _row_groups(file)]

    def tokenizer(self, files: Sequence[str]) -> str | None:
        del files
        return None


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group of a Parquet file, read when it is needed. ``stamp`` changes with the file."""

    file: str
    number: int
    num_tokens: int
    rows: int
    dtype: np.dtype[Any]
    stamp: int
    mask: None = None

    @property
    def ends(self) -> _RowGroupEnds:
        return _RowGroupEnds(self)

    def ids(self) -> AnyInts:
        return self.read()[0]

    def read(self) -> tuple[AnyInts, AnyInts]:
        ids, offsets = _read_row_group(self.file, self.number, self.stamp)
        if len(ids) != self.num_tokens:
            raise DataError(
                f"{self.file}: row group {self.number} holds {len(ids):,} ids, its metadata say {self.num_tokens:,}; "
                "write the file again"
            )
        return ids, offsets


@dataclass(frozen=True, slots=True)
class _RowGroupEnds:
    group: _RowGroup

    def __len__(self) -> int:
        return self.group.rows

    def between(self, start: int, stop: int) -> Ints:
        offsets = self.group.read()[1]
        return SortedEnds(offsets[1:], self.group.file, int(offsets[0])).between(start, stop)

    def check(self) -> None:
        """The offsets are in order, as they have just been computed; the columns beside the ids are looked at."""
        file, number, offsets = self.group.file, self.group.number, self.group.read()[1]
        names = masking_columns(pq.read_schema(file))
        table = pq.ParquetFile(file, memory_map=True).read_row_group(number, columns=names) if names else None
        for name in names:
            check_unmasked(file, name, cast("Any", table).column(name).combine_chunks(), offsets)


@functools.lru_cache(maxsize=_KEPT_ROW_GROUPS)
def _read_row_group(file: str, number: int, stamp: int) -> tuple[AnyInts, AnyInts]:
    del stamp
    try:
        # One reader for each read: a shared one is not safe from several threads.
        column: Any = pq.ParquetFile(file, memory_map=True).read_row_group(number, columns=[COLUMN]).column(COLUMN)
    except (pa.ArrowInvalid, OSError) as fault:
        raise DataError(f"{file}: row group {number} can't be read ({fault}); copy it anew") from fault
    return flat_column(file, column.combine_chunks())


def _row_groups(file: str) -> list[Chunk]:
    try:
        opened = pq.ParquetFile(file, memory_map=True)
    except (pa.ArrowInvalid, OSError) as fault:
        raise DataError(f"{file} can't be read as Parquet ({fault}): it is cut off or damaged; copy it anew") from fault
    check_type(file, opened.schema_arrow)
    dtype = np.dtype(opened.schema_arrow.field(COLUMN).type.value_type.to_pandas_dtype())
    chunks, stamp = list[Chunk](), os.stat(file).st_mtime_ns
    for number in range(opened.metadata.num_row_groups):
        group = opened.metadata.row_group(number)
        tokens = _counted(group)
        tokens = len(_read_row_group(file, number, stamp)[0]) if tokens is None else tokens
        if group.num_rows:
            chunks.append(_RowGroup(file, number, tokens, group.num_rows, dtype, stamp))
    return chunks


def _counted(group: Any) -> int | None:
    """How many ids a row group holds, by its metadata; ``None``: they don't say."""
    columns = [group.column(number) for number in range(group.num_columns)]
    column = next(column for column in columns if column.path_in_schema.partition(".")[0] == COLUMN)
    statistics = column.statistics
    # An empty list counts as a value, and as a null.
    return None if statistics is None or not statistics.has_null_count else column.num_values - statistics.null_count
