"""Decode JSON: strictly, with a reason for what is refused, and in pieces where a value is very large.

Half a gigabyte of text in one value would be in memory four times: as the bytes read, as the decoder's copy of them, as
its text, and as what is joined of them. A value that arrives in blocks keeps its long texts once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, cast

import orjson

from marin.processing.growing_text import GrowingText
from marin.processing.records import Unfit

LONG = 1 << 20
"""Bytes of a string above which it is decoded as it arrives."""

_QUOTE = b'"'[0]
_STRING_BODY = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\[\]{}]')
_STRING_ONLY = re.compile(rb'"')
_WHOLE_UNITS = re.compile(
    # An escape, and the two escapes of one character, are not cut in two.
    rb"(?:[^\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB]).{4}|\\[^u])*+",
    re.DOTALL,
)
_LONGEST_UNIT = 12
_MARK = b"\\u0000"
"""How a string begins that stands for one kept aside. A string of the data that begins so is kept aside as well."""


def loads(data: bytes) -> Any:
    """The value that ``data`` is. Raises ``Unfit`` with the reason why it is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise unfit_json(data, fault) from None


def loads_exactly(data: bytes) -> Any:
    """As ``loads``, with integers of any size as they are written, which takes longer."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as fault:  # of what is JSON, a limit of Python's
        raise Unfit("wrong type", f"numbers and objects that Python has ({fault})") from None


def unfit_json(data: bytes, fault: orjson.JSONDecodeError) -> Unfit:
    """Why ``data`` is refused: what the decoder calls by one name has several reasons, mended in different ways."""
    try:
        text = data.decode()
    except UnicodeDecodeError as unicode_fault:
        return Unfit("invalid UTF-8", f"UTF-8 ({unicode_fault.reason} at its byte {unicode_fault.start})")
    if "surrogate" in fault.msg:
        return Unfit("lone surrogate", f"characters ({fault.msg} at column {fault.colno})")
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except _ConstantError as constant:
        return Unfit("NaN literal", f"JSON, which has no {constant}")
    except (ValueError, RecursionError):
        pass
    return Unfit("broken JSON", f"JSON ({fault.msg} at column {fault.colno})")


class JsonValue:
    """One JSON value that arrives in blocks. ``in_array``: it ends at a comma or bracket of the array it is in."""

    def __init__(self, *, in_array: bool = False) -> None:
        self.ended_by = 0
        """The byte that ended a value of an array, comma or bracket; 0 before that."""
        self._in_array, self._depth = in_array, 0
        self._skeleton = bytearray()
        self._aside = list[str]()
        self._long: GrowingText | None = None
        self._fault: Unfit | None = None

    @property
    def held(self) -> int:
        """Bytes in memory, besides long strings."""
        return len(self._skeleton)

    def excerpt(self) -> bytes:
        """How the value begins."""
        return bytes(self._skeleton[:400])

    def feed(self, data: bytes, at: int = 0) -> int:
        """Take ``data`` from ``at`` on. Returns up to where it was taken: the rest belongs before the next block, and
        if ``ended_by`` is set, to the next value."""
        kept = at
        if self._long is not None:
            at = kept = self._more_of_long(self._long, data, at)
            if self._is_in_long():
                return at
        while found := self._next(data, at):
            index, byte = found.start(), data[found.start()]
            at = index + 1
            if byte == _QUOTE:
                end, closed = _end_of_string(data, at)
                if closed and end - at <= LONG and not data.startswith(_MARK, at):
                    at = end + 1
                    continue
                self._skeleton += data[kept:index]
                if not closed and end - at <= LONG:
                    return index
                self._long = GrowingText()
                at = kept = self._more_of_long(self._long, data, at)
                if self._is_in_long():
                    return at
            elif self._ends_with(byte):
                self._skeleton += data[kept:index]
                return at
        self._skeleton += data[kept:]
        return len(data)

    def _ends_with(self, byte: int) -> bool:
        if byte in b"[{":
            self._depth += 1
        elif self._depth:
            self._depth -= 1
        elif byte in b",]":
            self.ended_by = byte
        return bool(self.ended_by)

    def _is_in_long(self) -> bool:
        return self._long is not None

    def finish(self, rest: bytes = b"") -> Any:
        """The value, with what ``feed`` left of the last block. Raises ``Unfit`` if it is none."""
        return self._finished(loads, rest)

    def finish_exactly(self, rest: bytes = b"") -> Any:
        """As ``finish``, with the integers of ``loads_exactly``."""
        return self._finished(loads_exactly, rest)

    def _finished(self, decode: Callable[[bytes], Any], rest: bytes) -> Any:
        if self._fault is not None:
            raise self._fault
        if self._long is not None:
            raise Unfit("broken JSON", "JSON (a string does not end)")
        return self._restored(decode(bytes(self._skeleton) + rest))

    def _next(self, data: bytes, at: int) -> re.Match[bytes] | None:
        pattern = _STRING_ONLY if not self._in_array else _INSIDE if self._depth else _OUTSIDE
        return pattern.search(data, at)

    def _more_of_long(self, long: GrowingText, data: bytes, at: int) -> int:
        end, closed = _end_of_string(data, at)
        cut = end if closed else _whole_units(data, at)
        try:
            long.add(loads(b'"%b"' % data[at:cut]))
        except Unfit as fault:
            self._fault = self._fault or fault
        if not closed:
            return cut
        self._skeleton += b'"%b%d"' % (_MARK, len(self._aside))
        self._aside.append(long.take())
        self._long = None
        return end + 1

    def _restored(self, value: Any) -> Any:
        if not self._aside:
            return value
        root = [value]
        open_containers: list[Any] = [root]
        while open_containers:
            container = open_containers.pop()
            if isinstance(container, dict):
                fields = [(self._one(key), self._one(each)) for key, each in cast("dict[str, Any]", container).items()]
                container.clear()
                cast("dict[str, Any]", container).update(fields)
                open_containers.extend(each for _, each in fields if isinstance(each, dict | list))
            else:
                container[:] = [self._one(each) for each in container]
                open_containers.extend(each for each in container if isinstance(each, dict | list))
        return root[0]

    def _one(self, value: Any) -> Any:
        return self._aside[int(value[1:])] if isinstance(value, str) and value.startswith("\0") else value


def _end_of_string(data: bytes, at: int) -> tuple[int, bool]:
    """Where the quote is that closes the string whose body begins ``at``; or where ``data`` ends, and False."""
    end = cast("re.Match[bytes]", _STRING_BODY.match(data, at)).end()
    return end, end < len(data) and data[end] == _QUOTE


def _whole_units(data: bytes, at: int) -> int:
    """Where ``data``, a part of a string's body, can be cut: not within an escape, a surrogate pair or a character."""
    begin = max(at, len(data) - 4 * _LONGEST_UNIT)
    while begin > at and data[begin - 1] == b"\\"[0]:
        begin -= 1
    cut = cast("re.Match[bytes]", _WHOLE_UNITS.match(data, begin)).end()
    if cut < len(data):
        return cut
    lead = cut - 1
    while lead > at and lead > cut - 4 and data[lead] & 0xC0 == 0x80:
        lead -= 1
    length = 4 if data[lead] >= 0xF0 else 3 if data[lead] >= 0xE0 else 2 if data[lead] >= 0xC0 else 1
    return lead if lead + length > cut else cut


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(name)
