"""Write the Parquet shards of a set of documents, and take rows out of one.

A row group has about eight megabytes of text, so that a reader which takes one at a time needs little memory, and a
later step can cut a large shard into pieces. The same documents give the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from marin.errors import DataError
from marin.processing.cleaning.document_set import ID, OWN_COLUMNS, TEXT
from marin.processing.cleaning.manifest import DocumentShard
from marin.processing.durable import commit_file
from marin.storage.faults import translated_faults

GROUP_BYTES = 8 << 20
GROUP_ROWS = 1 << 16
"""A row group ends with the document that reaches either."""

_LARGEST_TEXT = (1 << 31) - (1 << 20)
"""What a page of Parquet can hold."""


class Row(NamedTuple):
    """One document as it is written. ``text`` is UTF-8."""

    digest: bytes
    text: bytes
    source: str
    fields: tuple[str | None, ...]


@final
class ShardWriter:
    """Writes one shard. The file appears under its name when ``close`` returns, and not at all without a document."""

    def __init__(self, root: str, file: str, columns: Sequence[str]) -> None:
        self._file, self._path = file, os.path.join(root, file)
        self._scratch = f"{self._path}.tmp"
        self._schema = pa.schema([pa.field(name, pa.string(), nullable=name not in OWN_COLUMNS) for name in columns])
        self._writer: Any = None
        self._rows, self._size = list[Row](), 0
        self._tables, self._tables_size, self._tables_rows = list[Any](), 0, 0
        self._digest = hashlib.sha256()
        self.documents = self._text_bytes = 0

    def add(self, row: Row) -> None:
        """Raises ``DataError`` for a text that is too long for Parquet."""
        if len(row.text) > _LARGEST_TEXT:
            raise DataError(
                f"{row.source}: a document of {len(row.text):,} bytes, more than Parquet can hold in one value "
                f"({_LARGEST_TEXT:,}): cut it into several"
            )
        self._rows.append(row)
        self._size += len(row.text)
        if self._size >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS:
            self._flush_rows()

    def add_table(self, table: Any) -> None:
        """Documents of another shard, whose row groups become larger where few of them are left."""
        size = _text_bytes(table)
        self._tables.append(table)
        self._tables_size += size
        self._tables_rows += table.num_rows
        if self._tables_size >= GROUP_BYTES or self._tables_rows >= GROUP_ROWS:
            self._flush_tables()

    def close(self) -> DocumentShard | None:
        """What was written; ``None`` if that is nothing."""
        self._flush_rows()
        self._flush_tables()
        if self._writer is None:
            with contextlib.suppress(FileNotFoundError):  # of an earlier attempt
                os.unlink(self._path)
            return None
        with translated_faults(self._path, writing=True):
            self._writer.close()
            commit_file(self._scratch, self._path)
            size = os.path.getsize(self._path)
        return DocumentShard(
            file=self._file,
            bytes=size,
            documents=self.documents,
            text_bytes=self._text_bytes,
            content_sha256=self._digest.hexdigest(),
        )

    def discard(self) -> None:
        """Remove what was written so far."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._scratch)

    def _flush_rows(self) -> None:
        if not self._rows:
            return
        rows, self._rows, self._size = self._rows, [], 0
        fields = zip(*(row.fields for row in rows), strict=True)
        columns = [
            pa.array([row.digest.hex() for row in rows], pa.string()),
            pa.array([row.text for row in rows], pa.binary()).view(pa.string()),  # checked when it was encoded
            pa.array([row.source for row in rows], pa.string()),
            *(pa.array(values, pa.string()) for values in fields),
        ]
        self._write(pa.Table.from_arrays(columns, schema=self._schema))

    def _flush_tables(self) -> None:
        if self._tables:
            tables, self._tables, self._tables_size, self._tables_rows = self._tables, [], 0, 0
            self._write(pa.concat_tables(tables).combine_chunks())

    def _write(self, table: Any) -> None:
        if not table.num_rows:
            return
        with translated_faults(self._path, writing=True):
            if self._writer is None:
                self._writer = pyarrow.parquet.ParquetWriter(
                    self._scratch,
                    self._schema,
                    compression="zstd",
                    # Ids never repeat and texts seldom do.
                    use_dictionary=cast("Any", [name for name in self._schema.names if name not in (ID, TEXT)]),
                    write_statistics=False,
                )
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._digest.update("".join(table.column(ID).to_pylist()).encode())
        self.documents += table.num_rows
        self._text_bytes += _text_bytes(table)


def without_rows(path: str, rows: npt.NDArray[np.int64], writer: ShardWriter) -> None:
    """Give ``writer`` all rows of the shard at ``path`` but ``rows``, which are sorted."""
    with pyarrow.parquet.ParquetFile(path) as parquet:
        start = 0
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, use_threads=False)
            stop = start + table.num_rows
            first, last = np.searchsorted(rows, [start, stop])
            if first < last:
                kept = np.ones(table.num_rows, np.bool_)
                kept[rows[first:last] - start] = False
                table = table.filter(pa.array(kept))
            writer.add_table(table)
            start = stop


def rows_in(path: str) -> int | None:
    """How many documents the shard at ``path`` has; ``None`` if there is none, or it is damaged."""
    try:
        with pyarrow.parquet.ParquetFile(path) as parquet:
            return parquet.metadata.num_rows
    except (OSError, pa.ArrowException):
        return None


def _text_bytes(table: Any) -> int:
    lengths = pyarrow.compute.call_function("binary_length", [table.column(TEXT)])
    return pyarrow.compute.call_function("sum", [lengths]).as_py() or 0
