"""Open Parquet and Arrow files, and tell how large their parts are."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from typing import Any, final

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from marin.processing.compression import BLOCK, Damaged, damage
from marin.processing.input_files import InputFile, open_file
from marin.processing.sources import is_url

_IPC_FILE = b"ARROW1"
_ENDS_OF_STREAM = (b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0")
"""The mark that ends a stream, and what it was before version 1.0 of the format."""


@contextlib.contextmanager
def told_as_damage(file: InputFile) -> Generator[None, None, None]:
    """What pyarrow raises in the block for content that it can't read becomes ``Damaged``."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as fault:
        raise damage(fault, file) from fault


@contextlib.contextmanager
def open_parquet(file: InputFile) -> Generator[pyarrow.parquet.ParquetFile, None, None]:
    """Raises ``Damaged`` for what is no Parquet file."""
    with contextlib.ExitStack() as stack:
        source: Any = stack.enter_context(open_file(file)) if is_url(file.path) else file.path
        with told_as_damage(file):
            # Without buffering a whole column of a row group would be read at once.
            parquet = pyarrow.parquet.ParquetFile(source, buffer_size=BLOCK, pre_buffer=False)
        yield stack.enter_context(parquet)


@contextlib.contextmanager
def open_arrow(file: InputFile, fields: Sequence[int] | None = None) -> Generator[Any, None, None]:
    """A reader of the record batches, with the top-level ``fields`` alone; it has ``num_record_batches`` if the file
    is no stream. Raises ``Damaged`` for what is no Arrow file, and at the end of a stream that is not whole."""
    with contextlib.ExitStack() as stack:
        with told_as_damage(file):
            # Not mapped: what is read would count as this process's memory until the file is closed.
            source = stack.enter_context(pa.PythonFile(open_file(file)) if is_url(file.path) else pa.OSFile(file.path))
            magic = source.read(len(_IPC_FILE))
            source.seek(0)
            options = pyarrow.ipc.IpcReadOptions(included_fields=None if fields is None else list(fields))
            is_file = magic == _IPC_FILE
            reader = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(source, options=options)
        stack.enter_context(reader)
        yield reader if is_file else _Stream(reader, source)


@final
class _Stream:
    """The batches of an Arrow stream, up to its end-of-stream mark.

    The format lets a writer end a stream by closing it instead, but then a file that was cut between two batches would
    look whole. Every writer of a file that we know of writes the mark.
    """

    def __init__(self, reader: Any, source: Any) -> None:
        self._reader, self._source = reader, source
        self.schema = reader.schema

    def __iter__(self) -> Iterator[Any]:
        reached = self._source.tell()
        for batch in self._reader:
            reached = self._source.tell()
            yield batch
        end = self._source.tell()
        self._source.seek(max(reached, end - len(_ENDS_OF_STREAM[0])))
        if self._source.read(end - self._source.tell()) not in _ENDS_OF_STREAM:
            raise Damaged(
                "truncated",
                "the mark that ends an Arrow stream, so copy it again, or if its writer was not closed, write it anew",
            )
        if self._source.read(1):
            raise Damaged(
                "damaged",
                "nothing after the mark that ends an Arrow stream: of several streams, make a file of each",
            )


def row_group_sizes(file: InputFile) -> list[int]:
    """About how many bytes on the disk each row group has. Empty if the file is damaged."""
    with contextlib.suppress(Damaged), open_parquet(file) as parquet, told_as_damage(file):
        # Not those of its columns: of a damaged file, pyarrow ends the process when it is asked for them.
        sizes = [parquet.metadata.row_group(number).total_byte_size for number in range(parquet.num_row_groups)]
        return [max(size, 0) * file.size // max(sum(sizes), 1) for size in sizes]
    return []


def batch_sizes(file: InputFile) -> list[int]:
    """About how many bytes on the disk each record batch has. Empty if the file is damaged, or a stream."""
    with contextlib.suppress(Damaged), open_arrow(file) as reader, told_as_damage(file):
        count = getattr(reader, "num_record_batches", 0)
        bounds = [file.size * number // count for number in range(count + 1)] if count else []
        return [stop - start for start, stop in itertools.pairwise(bounds)]
    return []
