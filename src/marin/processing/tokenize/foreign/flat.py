"""A token stream over mapped arrays: what every layout comes down to."""

from __future__ import annotations

import bisect
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from marin.errors import DataError
from marin.processing.tokenize.stream import Ids, Ints, Mask

AnyInts: TypeAlias = npt.NDArray[np.integer[Any]]

_CHECKED_AT_ONCE = 1 << 22


class Ends(Protocol):
    """Where the documents of a chunk end, in tokens from the chunk's beginning, ascending; mapped and not read."""

    def __len__(self) -> int: ...

    def between(self, start: int, stop: int) -> Ints:
        """The ends in ``(start, stop]``; of documents that are empty, one end may come more than once."""
        ...

    def check(self) -> None:
        """Read all of them. ``DataError`` if they do not ascend, or contradict the file that they come from."""
        ...


class Chunk(Protocol):
    """A part of a stream: one file, or one batch of it. A document may reach over its end where ``ends`` has none."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of ``ids``: any integer type."""
        ...

    @property
    def ends(self) -> Ends: ...

    @property
    def mask(self) -> Mask | None:
        """Which tokens are learned; ``None``: all."""
        ...

    def ids(self) -> AnyInts:
        """All tokens of the chunk, mapped where they can be."""
        ...


@dataclass(frozen=True, slots=True)
class MappedChunk:
    """A chunk that lies in a file as an array."""

    array: AnyInts
    ends: Ends
    mask: Mask | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.array)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def ids(self) -> AnyInts:
        return self.array


@dataclass(frozen=True, slots=True)
class SortedEnds:
    """Ends that lie in a file one after the other. ``base`` is what they count from, ``origin`` the file."""

    array: AnyInts
    origin: str
    base: int = 0

    def __len__(self) -> int:
        return len(self.array)

    def between(self, start: int, stop: int) -> Ints:
        first, last = (bisect_mapped(self.array, bound + self.base) for bound in (start, stop))
        return self.array[first:last].astype(np.int64) - self.base

    def check(self) -> None:
        if len(self.array) and self.array[0] < self.base:
            raise DataError(
                f"{self.origin}: its first document ends at {int(self.array[0]) - self.base:,}, in front of its first "
                "token; the file is damaged, copy it anew"
            )
        check_ascending(self.array, self.origin)


def bisect_mapped(ascending: AnyInts, value: int) -> int:
    """How many of ``ascending`` are at most ``value``."""
    # numpy.searchsorted would copy, and so read, an array that is not aligned, or of another type than the value.
    return bisect.bisect_right(cast("Sequence[int]", ascending), value)


def one_document(num_tokens: int, origin: str) -> SortedEnds:
    """The ends of a file that does not say where its documents are."""
    return SortedEnds(np.array([num_tokens], np.int64), origin)


def no_end(origin: str) -> SortedEnds:
    """The ends of a file whose document goes on in the next one."""
    return SortedEnds(np.zeros(0, np.int64), origin)


def check_ascending(values: AnyInts, origin: str) -> None:
    """Raise ``DataError`` unless no value is smaller than the one before it."""
    for first in range(0, len(values), _CHECKED_AT_ONCE):
        piece = values[first : first + _CHECKED_AT_ONCE + 1]
        if (piece[1:] < piece[:-1]).any():
            raise DataError(f"{origin}: the document ends do not ascend; the file is damaged, copy it anew")


def mapped(file: str, dtype: Any, *, offset: int = 0, count: int | None = None) -> npt.NDArray[Any]:
    """An array that lies in ``file`` from byte ``offset`` on. ``DataError`` if the file is too short for it."""
    kind = np.dtype(dtype)
    with open(file, "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        count = (size - offset) // kind.itemsize if count is None else count
        if count < 0 or offset + count * kind.itemsize > size:
            raise DataError(
                f"{file} is cut off: it has {size:,} bytes, and needs {offset + count * kind.itemsize:,}; copy it anew"
            )
        if count == 0:
            return np.zeros(0, kind)
        whole = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(whole, kind, count, offset)


class FlatStream:
    """Chunks one after the other, as the trainer reads them: uint16 where every chunk fits in it, else uint32.

    Reading is safe from several threads.
    """

    def __init__(self, path: str, split: str, chunks: Sequence[Chunk]) -> None:
        self.path, self.split = path, split
        self._chunks = [chunk for chunk in chunks if chunk.num_tokens]
        self._starts = [0]
        for chunk in self._chunks:
            self._starts.append(self._starts[-1] + chunk.num_tokens)
        wide = any(chunk.dtype.itemsize > 2 for chunk in self._chunks)
        self.dtype: np.dtype[Any] = np.dtype(np.uint32 if wide else np.uint16)
        self.num_documents = sum(len(chunk.ends) for chunk in chunks)
        self._masked = any(chunk.mask is not None for chunk in chunks)

    @property
    def num_tokens(self) -> int:
        return self._starts[-1]

    def tokens(self, start: int, count: int) -> Ids:
        self._check_span(start, count)
        pieces = [self._ids(index, low, high) for index, low, high in self._spans(start, count)]
        if len(pieces) == 1:
            return pieces[0]
        joined = np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)
        joined.flags.writeable = False
        return joined

    def windows(self, starts: npt.NDArray[np.integer[Any]], length: int) -> Ids:
        batch = np.empty((len(starts), length), self.dtype)
        for row, start in enumerate(starts.tolist()):
            batch[row] = self.tokens(start, length)
        return batch

    def document_ends(self, start: int, count: int) -> Ints:
        self._check_span(start, count)
        pieces = [
            self._chunks[index].ends.between(low, high) + self._starts[index]
            for index, low, high in self._spans(start, count)
        ]
        ends = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
        # An empty document ends where the one before it does.
        return ends[np.diff(ends, prepend=-1) > 0]

    def loss_mask(self, start: int, count: int) -> Mask | None:
        self._check_span(start, count)
        if not self._masked:
            return None
        learned = np.ones(count, np.bool_)
        for index, low, high in self._spans(start, count):
            mask, begin = self._chunks[index].mask, self._starts[index] + low - start
            if mask is not None:
                learned[begin : begin + high - low] = mask[low:high]
        return learned

    def check(self) -> None:
        """Read all document ends. ``DataError`` if they are not in order, or tokens follow on the last one."""
        for chunk in self._chunks:
            chunk.ends.check()
        if self.num_tokens and self.document_ends(self.num_tokens - 1, 1).tolist() != [self.num_tokens]:
            raise DataError(f"{self.path}: the {self.split} split has tokens behind its last document; copy it anew")

    def _check_span(self, start: int, count: int) -> None:
        if start < 0 or count < 0 or start + count > self.num_tokens:
            raise IndexError(f"tokens {start} to {start + count} of a split of {self.num_tokens}: {self.path}")

    def _spans(self, start: int, count: int) -> list[tuple[int, int, int]]:
        """The chunks that tokens from ``start`` on lie in, and from where to where in each."""
        spans, index, stop = list[tuple[int, int, int]](), bisect.bisect_right(self._starts, start) - 1, start + count
        while start < stop:
            begin, until = self._starts[index], min(stop, self._starts[index + 1])
            spans.append((index, start - begin, until - begin))
            start, index = until, index + 1
        return spans

    def _ids(self, index: int, low: int, high: int) -> Ids:
        piece = self._chunks[index].ids()[low:high]
        if piece.dtype == self.dtype:
            return cast("Ids", piece)
        wider, signed = piece.dtype.itemsize > self.dtype.itemsize, piece.dtype.kind == "i"
        if (signed and piece.min() < 0) or (wider and piece.max() > np.iinfo(self.dtype).max):
            raise self._no_id(piece, self._starts[index] + low)
        same_width = piece.dtype.itemsize == self.dtype.itemsize and piece.dtype.isnative
        ids = cast("Ids", piece.view(self.dtype)) if same_width else piece.astype(self.dtype)
        ids.flags.writeable = False
        return ids

    def _no_id(self, piece: AnyInts, start: int) -> DataError:
        at = int(np.argmax((piece < 0) | (piece > np.iinfo(self.dtype).max)))
        return DataError(
            f"{self.path}: token {start + at:,} of the {self.split} split is {int(piece[at])}, which is no id: "
            "the file is damaged, or its ids have another type than it says"
        )
