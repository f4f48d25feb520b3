"""Read the records of input files, one by one, in one pass and in the memory of a batch.

Nothing is skipped in silence: what can't be read is refused with file, line and byte, or counted by its reason.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from marin.errors import ConfigurationError
from marin.processing.bad_records import BadRecords
from marin.processing.compression import Damaged, blocks
from marin.processing.csv_records import read_csv
from marin.processing.growing_text import GrowingText
from marin.processing.input_files import open_file
from marin.processing.json_records import read_json, read_json_lines
from marin.processing.pieces import Piece
from marin.processing.records import ABSENT, Accept, Fit, Inexact, Make, Row, Unfit, accept_object, accept_text, kind
from marin.processing.sources import FileFormat
from marin.processing.table_records import read_arrow, read_parquet

__all__ = ["ABSENT", "Document", "Inexact", "Row", "Unfit", "is_held_out", "no_text", "read_documents", "read_rows"]

_HASHED_AT_ONCE = 1 << 20


class Document(NamedTuple):
    """One text, and how many bytes of its piece have been read so far."""

    text: str
    consumed: int


def read_documents(piece: Piece, text_key: str, bad: BadRecords) -> Iterator[Document]:
    """The documents of ``piece``, in order. Texts are exact: line ends are kept, a byte order mark is not.

    ``text_key`` names the field of the text; where no field has that name, dots lead into nested ones.
    """

    def text(values: tuple[Any, ...]) -> str:
        [value] = values
        if type(value) is str:
            return value
        raise no_text(value, text_key)

    if piece.file.format == "text":
        return _read_text(piece, bad)
    return _read(piece, (text_key,), text, accept_text(text_key, text), Document, bad)


def read_rows(
    piece: Piece, keys: Sequence[str], fit: Callable[[tuple[Any, ...]], tuple[Any, ...]], bad: BadRecords
) -> Iterator[Row]:
    """The fields that ``keys`` name of each record, as ``fit`` returns them.

    ``fit`` gets the values in the order of ``keys``, ``ABSENT`` for a field that a record does not have, and raises
    ``Unfit`` for what can't be used, ``Inexact`` for numbers that it wants exactly. Files of the format ``text`` have
    no fields: ask for their documents.
    """
    if piece.file.format == "text":
        raise ConfigurationError(f"{piece.file.shown} is one text, without the fields {', '.join(keys)}: exclude it")
    return _read(piece, keys, fit, accept_object(keys, fit), Row, bad)


def is_held_out(text: str, fraction: float) -> bool:
    """Whether a document belongs to the held-out ``fraction``. Depends on its text alone.

    >>> is_held_out("a", 0.0), is_held_out("a", 1.0)
    (False, True)
    """
    digest = hashlib.blake2b(digest_size=8)
    for start in range(0, len(text), _HASHED_AT_ONCE):  # a large text is not to be in memory twice
        digest.update(text[start : start + _HASHED_AT_ONCE].encode())
    return int.from_bytes(digest.digest(), "big") < fraction * 2**64


def _read(piece: Piece, keys: Sequence[str], fit: Fit, accept: Accept, make: Make, bad: BadRecords) -> Iterator[Any]:
    if piece.file.format in _COLUMNAR:
        return _COLUMNAR[piece.file.format](piece, keys, fit, make, bad)
    return _OBJECTS[piece.file.format](piece, accept, make, bad)


def no_text(value: object, text_key: str) -> Unfit:
    """What is wrong with a record whose field ``text_key`` holds ``value``, which is no text."""
    if value is ABSENT:
        return Unfit("missing key", f"a field {text_key!r}, or another one named with text_key=")
    reason = {"null": "null", "a number": "number"}.get(kind(value), "wrong type")
    return Unfit(reason, f"text in {text_key!r}, not {kind(value)}")


def _read_text(piece: Piece, bad: BadRecords) -> Iterator[Document]:
    decoder, text = codecs.getincrementaldecoder("utf-8-sig")(), GrowingText()
    read, lines = 0, 1
    try:
        with open_file(piece.file) as disk:
            for block in blocks(disk, piece.file):
                read, lines = read + len(block), lines + block.count(b"\n")
                text.add(decoder.decode(block))
            told = disk.tell()
            text.add(decoder.decode(b"", final=True))
    except UnicodeDecodeError as fault:
        rest = fault.object[fault.start :]  # up to the last byte read
        line = lines - rest.count(b"\n")
        position = f"line {line}, byte {read - len(rest)}"
        expected = f"UTF-8 ({fault.reason}; convert the file, or leave it out with exclude=)"
        bad.refuse("invalid UTF-8", piece.file, lambda: position, expected, rest)
    except Damaged as fault:
        position = f"line {lines}, byte {read}"
        bad.refuse(fault.reason, piece.file, lambda: position, fault.expected, text.take()[-80:])
    else:
        yield Document(text.take(), told)


_OBJECTS: dict[FileFormat, Callable[[Piece, Accept, Make, BadRecords], Iterator[Any]]] = {
    "jsonl": read_json_lines,
    "json": read_json,
    "csv": read_csv,
}
_COLUMNAR: dict[FileFormat, Callable[[Piece, Sequence[str], Fit, Make, BadRecords], Iterator[Any]]] = {
    "parquet": read_parquet,
    "arrow": read_arrow,
}
