"""Read documents from files: undo their compression, give their texts one by one.

Nothing is skipped in silence. A record that can't be read is a ``BadRecordError`` with file, line and byte.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, NoReturn, cast

import orjson
import pyarrow as pa
import pyarrow.parquet

from marin.errors import BadRecordError, DataError
from marin.processing.input_files import InputFile
from marin.processing.sources import FileFormat

_BUFFER = 1 << 20
_BOM = b"\xef\xbb\xbf"
_PARQUET_ROWS = 1024
"""Rows decoded at once: bounds memory, whatever the size of a row group."""


class Document(NamedTuple):
    """One text, and how many bytes of its file on the disk have been read so far."""

    text: str
    consumed: int


def read_documents(file: InputFile, text_key: str) -> Iterator[Document]:
    """The documents of one file, in order. Texts are exact: line ends are kept, a byte order mark is not.

    ``text_key`` names the field of the text; where no field has that name, dots lead into nested ones.
    """
    reader = _READERS[file.format]
    try:
        yield from reader(file, text_key)
    except (EOFError, OSError, lzma.LZMAError, zlib.error, pa.ArrowException) as fault:
        # Only the operating system sets errno; without one the content is at fault.
        if isinstance(fault, OSError) and fault.errno is not None:
            raise DataError(f"{file.shown} can't be read: {fault.strerror}; mend that, or exclude the file") from fault
        kind = file.compression or file.format
        raise BadRecordError(f"{file.shown}: damaged or truncated {kind} file ({fault}): copy it again") from fault


def is_held_out(text: str, fraction: float) -> bool:
    """Whether a document belongs to the held-out ``fraction``. Depends on its text alone.

    >>> is_held_out("a", 0.0), is_held_out("a", 1.0)
    (False, True)
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < fraction * 2**64


def _read_text(file: InputFile, text_key: str) -> Iterator[Document]:
    del text_key
    with open(file.path, "rb") as disk, _decompressed(disk, file) as stream:
        data = stream.read()
    try:
        yield Document(data.decode("utf-8-sig"), file.size)
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise BadRecordError(
            f"{file.shown}, line {line}, byte {fault.start}: not UTF-8 ({fault.reason}): convert or exclude the file"
        ) from fault


def _read_jsonl(file: InputFile, text_key: str) -> Iterator[Document]:
    key = text_key.split(".")
    with open(file.path, "rb") as disk, _decompressed(disk, file) as stream:
        offset = 0
        for number, line in enumerate(stream, start=1):
            body = line.removeprefix(_BOM) if number == 1 else line
            if not body.isspace() and body:
                where = _Place(file.shown, f"line {number}, byte {offset}")
                yield Document(_text(_json(body, where), text_key, key, where), disk.tell())
            offset += len(line)


def _read_json(file: InputFile, text_key: str) -> Iterator[Document]:
    """An array of objects, one object, or JSON lines under a ``.json`` name, which are common."""
    with open(file.path, "rb") as disk, _decompressed(disk, file) as stream:
        data = stream.read().removeprefix(_BOM)
    if not data.strip():
        return
    if not data.lstrip().startswith(b"[") and b"\n" in data.strip() and _is_json(data.lstrip().split(b"\n", 1)[0]):
        yield from _read_jsonl(file, text_key)
        return
    whole = _json(data, _Place(file.shown, "whole file"))
    records: list[Any] = whole if isinstance(whole, list) else [whole]
    key = text_key.split(".")
    for number, record in enumerate(records, start=1):
        text = _text(record, text_key, key, _Place(file.shown, f"record {number}"))
        yield Document(text, file.size * number // len(records))


def _read_parquet(file: InputFile, text_key: str) -> Iterator[Document]:
    with pyarrow.parquet.ParquetFile(file.path) as parquet:
        names = parquet.schema_arrow.names
        top = text_key if text_key in names else text_key.split(".")[0]
        if top not in names:
            raise BadRecordError(
                f"{file.shown}: no column {text_key!r}; it has {', '.join(names)}: choose one with text_key="
            )
        key = [top, *text_key.removeprefix(top).split(".")[1:]]
        rows, row = max(parquet.metadata.num_rows, 1), 0
        for batch in parquet.iter_batches(batch_size=_PARQUET_ROWS, columns=[top]):
            for value in _values(batch.column(0), file, row):
                row += 1
                text = _text({top: value}, text_key, key, _Place(file.shown, f"row {row}"))
                yield Document(text, file.size * row // rows)


def _values(column: Any, file: InputFile, row: int) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError as fault:
        raise BadRecordError(
            f"{file.shown}, rows {row + 1} to {row + len(column)}: not UTF-8 ({fault.reason}): write the column anew"
        ) from fault


class _Place(NamedTuple):
    file: str
    position: str

    def bad(self, what: str) -> NoReturn:
        raise BadRecordError(f"{self.file}, {self.position}: {what}")


def _json(data: bytes, where: _Place) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        where.bad(f"not JSON ({_reason(data, fault)}): mend or remove it")


def _reason(data: bytes, fault: json.JSONDecodeError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as unicode_fault:
        return f"byte {unicode_fault.start} of it is not UTF-8"
    return f"{fault.msg} at column {fault.colno}"


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _text(record: Any, text_key: str, key: list[str], where: _Place) -> str:
    if not isinstance(record, dict):
        where.bad(f"expected an object with {text_key!r}, found {_kind(record)}")
    fields = cast("dict[str, Any]", record)
    value: Any = fields.get(text_key, _ABSENT)
    if value is _ABSENT:
        value = fields
        for part in key:
            value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
    if type(value) is str:
        return value
    if value is _ABSENT:
        has = ", ".join(fields) or "nothing"
        where.bad(f"no field {text_key!r}; it has {has}: name the text's field with text_key=, or mend the record")
    return where.bad(f"{text_key!r} is {_kind(value)}, not text: mend or remove the record")


_ABSENT: Any = object()


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value).__name__, type(value).__name__)


_KINDS = {
    "dict": "an object",
    "list": "a list",
    "str": "text",
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
}


def _decompressed(disk: BinaryIO, file: InputFile) -> BinaryIO:
    """Bytes without compression. Files of several members or frames are read to their end."""
    match file.compression:
        case None:
            return disk
        case "gzip":
            return cast("BinaryIO", io.BufferedReader(cast("Any", gzip.GzipFile(fileobj=disk)), _BUFFER))
        case "bz2":
            return cast("BinaryIO", io.BufferedReader(_Members(disk, bz2.BZ2Decompressor), _BUFFER))
        case "xz":
            return cast("BinaryIO", io.BufferedReader(_Members(disk, lzma.LZMADecompressor), _BUFFER))
        case _:
            return cast("BinaryIO", io.BufferedReader(cast("Any", pa.CompressedInputStream(disk, "zstd")), _BUFFER))


class _Members(io.RawIOBase):
    """One member after another, and zeros between them. The libraries' own files drop what follows without a word if
    it is damaged."""

    def __init__(self, disk: BinaryIO, new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        super().__init__()
        self._disk, self._new = disk, new
        self._member: bz2.BZ2Decompressor | lzma.LZMADecompressor | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            if self._member is None or self._member.eof:
                first = self._first_of_next()
                if not first:
                    return 0
                self._member = self._new()
                data = self._member.decompress(first, len(buffer))
            else:
                more = self._disk.read(_BUFFER) if self._member.needs_input else b""
                if self._member.needs_input and not more:
                    raise EOFError("it ends within compressed data")
                data = self._member.decompress(more, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _first_of_next(self) -> bytes:
        """The first bytes of the next member, or nothing at the end of the file."""
        found = self._member.unused_data.lstrip(b"\0") if self._member else b""
        while not found and (more := self._disk.read(_BUFFER)):
            found = more.lstrip(b"\0")
        return found


_READERS: dict[FileFormat, Callable[[InputFile, str], Iterator[Document]]] = {
    "text": _read_text,
    "jsonl": _read_jsonl,
    "json": _read_json,
    "parquet": _read_parquet,
}
