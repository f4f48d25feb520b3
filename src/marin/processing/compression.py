"""Undo the compression of a file, block by block."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

import zstandard

from marin.errors import DataError
from marin.processing.input_files import InputFile

BLOCK = 1 << 20
"""Bytes read, or unpacked, at once."""

_ZSTD_FEED = 1 << 10
"""Packed bytes given to zstd at once. It has no limit on what comes out: 128 kB for every 10 bytes or so, at worst."""

_ZSTD_WINDOW = 1 << 31
"""How far back a file may refer, which is what ``zstd --long=31`` needs."""


class Damaged(Exception):
    """The content of a file ends before its time or can't be unpacked. ``reason``: "truncated" or "damaged"."""

    def __init__(self, reason: str, expected: str) -> None:
        super().__init__(reason, expected)
        self.reason, self.expected = reason, expected


def blocks(disk: BinaryIO, file: InputFile) -> Iterator[bytes]:
    """The content of ``file``, which ``disk`` reads, without its compression. Members and frames follow on each other.

    Raises ``Damaged`` after all that could be unpacked.
    """
    try:
        match file.compression:
            case None:
                yield from iter(lambda: disk.read(BLOCK), b"")
            case "gzip":
                yield from _members(disk, _Gzip)
            case "bz2":
                yield from _members(disk, bz2.BZ2Decompressor)
            case "xz":
                yield from _members(disk, lzma.LZMADecompressor)
            case _:
                yield from _members(disk, _Zstd)
    except (EOFError, OSError, lzma.LZMAError, zlib.error, zstandard.ZstdError) as fault:
        raise damage(fault, file) from fault


def damage(fault: Exception, file: InputFile) -> Exception:
    """What to raise for ``fault``: the file can't be reached, which is nobody's record, or its content is at fault."""
    # Only the operating system sets errno.
    if isinstance(fault, OSError) and fault.errno is not None:
        return DataError(f"{file.shown} can't be read: {fault.strerror}; mend that, or exclude the file")
    reason = "truncated" if isinstance(fault, EOFError) or "runcated" in str(fault) else "damaged"
    first_line = next(iter(str(fault).splitlines()), type(fault).__name__)
    return Damaged(reason, f"a whole {file.compression or file.format} file ({first_line}), so copy it again")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def _members(disk: BinaryIO, new: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """One member after another, and zeros between them. The libraries' own files drop what follows without a word if
    it is damaged."""
    member: _Decompressor | None = None
    while True:
        if member is None or member.eof:
            found = member.unused_data.lstrip(b"\0") if member else b""
            while not found and (more := disk.read(BLOCK)):
                found = more.lstrip(b"\0")
            if not found:
                return
            member = new()
            data = member.decompress(found, BLOCK)
        else:
            more = disk.read(BLOCK) if member.needs_input else b""
            data = member.decompress(more, BLOCK)
            # Asked once more for what it still holds, it had nothing.
            if not (data or more or member.eof) and member.needs_input:
                raise EOFError("it ends within compressed data")
        for start in range(0, len(data), BLOCK):
            yield data[start : start + BLOCK]


class _Gzip:
    """``zlib`` in the manner of ``bz2`` and ``lzma``. Checks the sum at the end of a member."""

    def __init__(self) -> None:
        self._inner: Any = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """``zstandard`` in the manner of ``bz2`` and ``lzma``."""

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self._left = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._left

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + bytes(self._left)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        left = memoryview(bytes(self._left) + data) if self._left else memoryview(data)
        made, size = list[bytes](), 0
        while left and size < max_length and not self._inner.eof:
            made.append(self._inner.decompress(left[:_ZSTD_FEED]))
            left = left[_ZSTD_FEED:]
            size += len(made[-1])
        self._left = left
        return b"".join(made)
