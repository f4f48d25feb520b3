"""Read the records of CSV files: commas, quotes, and a first row that names the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

from marin.processing.bad_records import BadRecords
from marin.processing.compression import Damaged, blocks
from marin.processing.input_files import open_file
from marin.processing.pieces import Piece
from marin.processing.records import Accept, Make, Unfit

LARGEST_RECORD = 64 << 20
"""Bytes of a record. A longer one is a quote that was not closed; the parser needs several times as many."""

_BOM = b"\xef\xbb\xbf"


def read_csv(piece: Piece, accept: Accept, make: Make, bad: BadRecords) -> Iterator[Any]:
    """The rows below the header, as objects whose keys are the header's names."""
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_RECORD))
    with open_file(piece.file) as disk:
        lines = _Lines(blocks(disk, piece.file))
        header: list[str] | None = None
        while True:
            try:
                row = lines.next_row()
            except Unfit as fault:
                row = []
                if lines.is_over or header is None:
                    bad.refuse_rest(fault.reason, piece.file, lines.position, fault.expected, lines.excerpt)
                    return
                _refuse(piece, lines, bad, fault)
            if row is None:
                return
            if not row:
                continue
            if header is None:
                header = row
                continue
            try:
                record = accept(_fields(header, row))
            except Unfit as fault:
                _refuse(piece, lines, bad, fault)
                continue
            yield make(record, disk.tell() if piece.file.compression else lines.offset)


def _fields(header: list[str], row: list[str]) -> dict[str, str]:
    if len(row) != len(header):
        # A comma too many would hand the text of one column to another.
        raise Unfit("broken CSV", f"{len(header)} fields as in the header ({len(row)} here), with quotes around commas")
    return dict(zip(header, row, strict=True))


def _refuse(piece: Piece, lines: _Lines, bad: BadRecords, fault: Unfit) -> None:
    bad.refuse(fault.reason, piece.file, lines.position, fault.expected, lines.excerpt)


class _Lines:
    """The lines of a CSV file, parsed record by record. Of a broken record all but its first line is parsed anew, so
    that a quote which was not closed costs one record."""

    def __init__(self, content: Iterator[bytes]) -> None:
        self._content, self._again = _split(content), list[bytes]()
        self._taken, self._size = list[bytes](), 0  # of the record
        self._number, self._first, self._begin = 0, 0, 0
        self._undecodable: Unfit | None = None
        self._reader = csv.reader(self, strict=True)
        self.offset = 0
        """Bytes of the lines read so far."""
        self.is_over = False
        """Whether the file is damaged, so that nothing follows."""

    @property
    def excerpt(self) -> bytes:
        return self._taken[0] if self._taken else b""

    def position(self) -> str:
        return f"line {self._first}, byte {self._begin}"

    def next_row(self) -> list[str] | None:
        """The fields of the next record; none for an empty line, ``None`` at the end. Raises ``Unfit``."""
        self._taken, self._size, self._undecodable = [], 0, None
        self._first, self._begin = self._number + 1, self.offset
        try:
            row = next(self._reader, None)
        except Damaged as fault:
            self.is_over = True
            raise Unfit(fault.reason, fault.expected) from fault
        except csv.Error as fault:
            self._give_back()
            raise Unfit("broken CSV", f"fields between commas, each in quotes or without any ({fault})") from fault
        if self._undecodable is not None:
            raise self._undecodable
        return row

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else next(self._content)
        self._taken.append(line)
        self._size += len(line)
        self._number += 1
        self.offset += len(line)
        if self._size > LARGEST_RECORD:
            raise csv.Error(f"a quote is not closed within {LARGEST_RECORD >> 20} MB")
        try:
            return line.decode()
        except UnicodeDecodeError as fault:
            self._undecodable = Unfit("invalid UTF-8", f"UTF-8 ({fault.reason} at byte {fault.start} of a line)")
            return line.decode(errors="surrogateescape")

    def _give_back(self) -> None:
        follow = self._taken[1:]
        self._again.extend(reversed(follow))
        self._number -= len(follow)
        self.offset -= sum(map(len, follow))
        self._reader = csv.reader(self, strict=True)


def _split(content: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with their ends; what is too long for a record comes in parts. A byte order mark is left out."""
    held, size, begun = list[bytes](), 0, False
    for block in content:
        *lines, last = (block if begun else block.removeprefix(_BOM)).split(b"\n")
        begun = True
        for line in lines:
            yield b"".join([*held, line, b"\n"])
            held, size = [], 0
        held.append(last)
        size += len(last)
        if size > LARGEST_RECORD:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)
