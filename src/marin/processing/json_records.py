"""Read the records of JSON lines and of JSON files, in memory for one block and one record."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

import orjson

from marin.processing.bad_records import BadRecords
from marin.processing.compression import BLOCK, Damaged, blocks
from marin.processing.input_files import open_file
from marin.processing.json_values import JsonValue, loads_exactly, unfit_json
from marin.processing.pieces import Piece
from marin.processing.records import Accept, Inexact, Make, Unfit, accepted_exactly

LONG_LINE = 4 << 20
"""Bytes from which a line is decoded as it arrives."""

LARGEST_ELEMENT = 256 << 20
"""Bytes, besides long texts, of an element of an array. More is a bracket or quote that was not closed."""

_BOM = b"\xef\xbb\xbf"
_END = b"\n"


def read_json_lines(piece: Piece, accept: Accept, make: Make, bad: BadRecords) -> Iterator[Any]:
    """The records whose lines begin within ``piece``."""
    with open_file(piece.file) as disk:
        yield from _Lines(piece, disk, accept, make, bad).records()


class _Lines:
    def __init__(self, piece: Piece, disk: BinaryIO, accept: Accept, make: Make, bad: BadRecords) -> None:
        self._piece, self._disk, self._accept, self._make, self._bad = piece, disk, accept, make, bad
        self._offset, self._stop = piece.start, piece.stop  # of the line, and of the piece, in the content
        self._number = 0  # of the line, in the piece
        self._added = 0  # bytes that the file does not have

    def records(self) -> Iterator[Any]:
        held, size, long = list[bytes](), 0, None
        try:
            for block in self._blocks():
                if not (cut := block.rfind(b"\n") + 1):
                    held.append(block)
                    size += len(block)
                    if long is not None or size > LONG_LINE:
                        long = long or _LongLine()
                        long.feed(b"".join(held))
                        held, size = [], 0
                    continue
                begin = 0
                if long is not None:
                    begin = block.find(b"\n") + 1
                    long.feed(b"".join([*held, block[: begin - 1]]))
                    yield from self._long(long)
                    held, long = [], None
                if begin < cut:
                    yield from self._short(b"".join([*held, block[begin : cut - 1]]))
                    held = []
                held, size = [*held, block[cut:]], len(block) - cut
                if self._is_over():
                    return
        except Damaged as fault:
            self._number += 1
            position, excerpt = partial(self._position, self._number, self._offset), b"".join(held)[-400:]
            self._bad.refuse_rest(fault.reason, self._piece.file, position, fault.expected, excerpt)

    def _short(self, lines: bytes) -> Iterator[Any]:
        accept, make, decode, stop = self._accept, self._make, orjson.loads, self._stop
        start, offset, number = self._piece.start + self._added, self._offset, self._number
        told = self._disk.tell() if self._piece.file.compression else None
        find, view, begin, end = lines.find, memoryview(lines), 0, -1  # views: a text is not copied to be decoded
        while end < len(lines):
            if stop is not None and offset >= stop:
                break
            begin = end + 1
            if (end := find(b"\n", begin)) < 0:
                end = len(lines)
            line = view[begin:end]
            number += 1
            try:
                try:
                    record = accept(decode(line))
                except Inexact:
                    record = accepted_exactly(accept, partial(loads_exactly, bytes(line)))
            except (orjson.JSONDecodeError, Unfit) as fault:
                self._offset, self._number = offset, number
                if (text := bytes(line)).strip():
                    self._refuse(fault if isinstance(fault, Unfit) else unfit_json(text, fault), text)
                offset += len(line) + 1
                continue
            offset += len(line) + 1
            yield make(record, offset - start if told is None else told)
            del record  # it may be large, and the next is made before this name is bound anew
        self._offset, self._number = offset, number

    def _long(self, line: _LongLine) -> Iterator[Any]:
        size, excerpt = line.size, line.excerpt()
        if self._is_over():
            return
        self._number += 1
        try:
            try:
                record = self._accept(line.finish())
            except Inexact:
                record = accepted_exactly(self._accept, line.finish_exactly)
        except Unfit as fault:
            self._refuse(fault, excerpt)
            self._offset += size + 1
            return
        self._offset += size + 1
        plain = self._offset - self._piece.start - self._added
        told = self._disk.tell() if self._piece.file.compression else plain
        yield self._make(record, told)

    def _is_over(self) -> bool:
        return self._stop is not None and self._offset >= self._stop

    def _refuse(self, fault: Unfit, line: bytes) -> None:
        position = partial(self._position, self._number, self._offset)
        self._bad.refuse(fault.reason, self._piece.file, position, fault.expected, line)

    def _position(self, number: int, offset: int) -> str:
        return f"line {number + _lines_before(self._piece)}, byte {offset}"

    def _blocks(self) -> Iterator[bytes]:
        """The content from the first line of the piece on. It always ends with the end of a line."""
        ended = True
        for block in self._from_first_line():
            if block:
                ended = block.endswith(b"\n")
                yield block
        if not ended:
            self._added = 1
            yield _END

    def _from_first_line(self) -> Iterator[bytes]:
        start = self._piece.start
        if start:
            self._disk.seek(start - 1)
        content = blocks(self._disk, self._piece.file)
        if start:
            return self._after_line_end(start - 1, content)
        first = next(content, b"")
        if first.startswith(_BOM):
            # The first line is that of the first piece, even if the piece is shorter than the mark.
            self._offset = len(_BOM)
            self._stop = None if self._stop is None else max(self._stop, len(_BOM) + 1)
        return itertools.chain((first.removeprefix(_BOM),), content)

    def _after_line_end(self, scanned: int, content: Iterator[bytes]) -> Iterator[bytes]:
        """What follows the first line end; nothing if no line begins within the piece."""
        for block in content:
            found = block.find(b"\n") + 1
            self._offset = scanned + (found or len(block) + 1)
            if self._is_over():
                break
            if found:
                return itertools.chain((block[found:],), content)
            scanned += len(block)
        return iter(())


class _LongLine:
    """A line that is decoded as it arrives."""

    def __init__(self) -> None:
        self.size = 0
        self._value, self._rest = JsonValue(), b""

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        data = self._rest + data
        self._rest = data[self._value.feed(data) :]

    def excerpt(self) -> bytes:
        return self._value.excerpt()

    def finish(self) -> Any:
        return self._value.finish(self._rest)

    def finish_exactly(self) -> Any:
        return self._value.finish_exactly(self._rest)


def read_json(piece: Piece, accept: Accept, make: Make, bad: BadRecords) -> Iterator[Any]:
    """An array of objects, one object, or JSON lines under a ``.json`` name, which are common."""
    if _holds_lines(piece):
        yield from read_json_lines(piece, accept, make, bad)
        return
    with open_file(piece.file) as disk:
        yield from _Values(piece, disk, accept, make, bad).records()


class _Values:
    """The elements of an array, or one value that is the whole file."""

    def __init__(self, piece: Piece, disk: BinaryIO, accept: Accept, make: Make, bad: BadRecords) -> None:
        self._piece, self._disk, self._accept, self._make, self._bad = piece, disk, accept, make, bad
        self._number, self._offset = 1, 0  # of the element, and of its first byte
        self._is_array: bool | None = None
        self._told = 0

    def records(self) -> Iterator[Any]:
        value, rest, read, done = JsonValue(), b"", 0, False
        try:
            for block in blocks(self._disk, self._piece.file):
                data, at = rest + block, 0
                read += len(block)
                self._told = self._disk.tell()
                if self._is_array is None:
                    at = self._begin(data)
                    value = JsonValue(in_array=bool(self._is_array))
                while not done and at < len(data):
                    at = value.feed(data, at)
                    if not value.ended_by:
                        break
                    yield from self._element(value)
                    done = value.ended_by == b"]"[0]
                    value, self._offset = JsonValue(in_array=True), read - len(data) + at
                rest = data[at:]
                if done and rest.strip():
                    return self._refuse_rest(Unfit("broken JSON", "nothing after the array"), rest)
                if value.held > LARGEST_ELEMENT:
                    most = f"a record of less than {LARGEST_ELEMENT >> 20} MB, whose brackets and quotes are closed"
                    return self._refuse_rest(Unfit("broken JSON", most), value.excerpt())
        except Damaged as fault:
            return self._refuse_rest(Unfit(fault.reason, fault.expected), value.excerpt())
        if self._is_array and not done:
            self._refuse_rest(Unfit("truncated", "the bracket that closes the array"), value.excerpt() or rest)
        elif self._is_array is False:
            yield from self._element(value, rest)

    def _begin(self, data: bytes) -> int:
        """Where the first value begins, once there is anything but space."""
        space = len(data) - len(data.removeprefix(_BOM).lstrip())
        if space < len(data):
            self._is_array = data.startswith(b"[", space)
            self._offset = space + self._is_array
        return space + bool(self._is_array)

    def _element(self, value: JsonValue, rest: bytes = b"") -> Iterator[Any]:
        excerpt = value.excerpt()
        if self._number == 1 and value.ended_by == b"]"[0] and not excerpt.strip():
            return  # the array is empty
        try:
            try:
                record = self._accept(value.finish(rest))
            except Inexact:
                record = accepted_exactly(self._accept, partial(value.finish_exactly, rest))
        except Unfit as fault:
            self._refuse(fault, excerpt or rest)
        else:
            yield self._make(record, self._told)
        self._number += 1

    def _refuse(self, fault: Unfit, excerpt: bytes) -> None:
        position = f"record {self._number}, byte {self._offset}"
        self._bad.refuse(fault.reason, self._piece.file, lambda: position, fault.expected, excerpt)

    def _refuse_rest(self, fault: Unfit, excerpt: bytes) -> None:
        position = f"record {self._number}, byte {self._offset}"
        self._bad.refuse_rest(fault.reason, self._piece.file, lambda: position, fault.expected, excerpt)


def _holds_lines(piece: Piece) -> bool:
    """Whether a ``.json`` file has a record on each line: its first line is one, or looks like one and a second does.

    ``{"a": {}`` begins an object of several lines, ``{"a": 1}`` is one.
    """
    head = b""
    with open_file(piece.file) as disk, contextlib.suppress(Damaged):  # told by whoever reads on
        for block in blocks(disk, piece.file):
            head += block
            if b"\n{" in head.strip() or len(head) > LONG_LINE:
                break
    first, newline, rest = head.removeprefix(_BOM).strip().partition(b"\n")
    if first.startswith(b"[") or not newline:
        return False
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return first.startswith(b"{") and first.rstrip().endswith(b"}") and rest.lstrip().startswith(b"{")
    return True


def _lines_before(piece: Piece) -> int:
    """Counted when there is something to tell, and not before."""
    count, left = 0, piece.start
    if left:
        with open_file(piece.file) as disk:
            while left and (block := disk.read(min(BLOCK, left))):
                count += block.count(b"\n")
                left -= len(block)
            # The piece begins within a line, which belongs to the piece before it.
            disk.seek(piece.start - 1)
            count += disk.read(1) != b"\n"
    return count
