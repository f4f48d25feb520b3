"""Megatron-LM: ``X.bin`` with tokens and nothing else, ``X.idx`` with where the sequences and documents are.

The index is little-endian: the magic ``MMIDIDX`` and two zeros, version 1 (uint64), a code for the type of the ids
(uint8), the number of sequences and the length of the list of documents (uint64 each); then per sequence its length in
tokens (int32), per sequence its place in bytes (int64), and which sequences begin documents, with one more at the end
(int64).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from marin.errors import DataError
from marin.processing.tokenize.foreign.flat import (
    Chunk,
    MappedChunk,
    bisect_mapped,
    check_ascending,
    mapped,
    no_end,
)
from marin.processing.tokenize.foreign.layout import Evidence, Place
from marin.processing.tokenize.stream import Ints

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
TYPE_OF_CODE = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
FLOAT_CODES = (6, 7)
_OLDER_MAGIC = b"TNTIDX\x00\x00"
_CHECKED_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class MegatronLayout:
    """Ids of any integer type, and an index."""

    name: str = "megatron"
    looks_for: str = "X.idx beside X.bin (Megatron)"

    def recognise(self, place: Place) -> Evidence | None:
        indices = [name for name in place.ending(".idx") if self._is_ours(place, name)]
        if not indices:
            return None
        names = tuple(name.removesuffix(".idx") + ".bin" for name in indices)
        return Evidence(because=f"{indices[0]} is a Megatron index", names=names)

    def _is_ours(self, place: Place, name: str) -> bool:
        beside = name.removesuffix(".idx") + ".bin" in place.names
        return beside or place.beginning_of(name, len(MAGIC)) in (MAGIC, _OLDER_MAGIC)

    def open(self, files: Sequence[str]) -> list[Chunk]:
        return [_open(file, file.removesuffix(".bin") + ".idx") for file in files]

    def tokenizer(self, files: Sequence[str]) -> str | None:
        del files
        return None


def _open(tokens: str, index: str) -> Chunk:
    if not os.path.exists(tokens):
        raise DataError(f"{index} has no {os.path.basename(tokens)} beside it, which holds the tokens: copy it there")
    kind, sequences, listed = _header(index)
    lengths = mapped(index, "<i4", offset=HEADER.size, count=sequences)
    place = HEADER.size + 4 * sequences
    pointers = mapped(index, "<i8", offset=place, count=sequences)
    documents = mapped(index, "<i8", offset=place + 8 * sequences, count=listed)
    _check_size(index, place + 8 * sequences + 8 * listed, sequences)
    end = int(pointers[-1]) + int(lengths[-1]) * kind.itemsize if sequences else 0
    if (size := os.stat(tokens).st_size) != end:
        raise DataError(
            f"{tokens} has {size:,} bytes, its .idx says {end:,} of {kind.name}: one of the two is cut off or belongs "
            "to another; copy both anew"
        )
    array = mapped(tokens, kind)
    if not sequences:
        return MappedChunk(array, no_end(index))
    return MappedChunk(array, _Ends(index, lengths, pointers, documents, kind.itemsize))


def _header(index: str) -> tuple[np.dtype[Any], int, int]:
    with open(index, "rb") as file:
        data = file.read(HEADER.size)
    if data.startswith(_OLDER_MAGIC):
        raise DataError(f"{index} is an index of Megatron's older kind (TNTIDX): preprocess the text again, as 'mmap'")
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        raise DataError(f"{index} is not a Megatron index: it does not begin with MMIDIDX; copy it anew")
    _, version, code, sequences, listed = HEADER.unpack(data)
    if version != VERSION:
        hint = ", or the file is big-endian" if version == VERSION << 56 else ""
        raise DataError(f"{index} has version {version} of the Megatron index, and {VERSION} is known{hint}")
    if code in FLOAT_CODES:
        raise DataError(f"{index} says that its data are floats (type code {code}): that is no cache of tokens")
    if code not in TYPE_OF_CODE:
        known = ", ".join(map(str, TYPE_OF_CODE))
        raise DataError(f"{index} has type code {code}, which is none of {known}: the file is damaged, copy it anew")
    return np.dtype(TYPE_OF_CODE[code]), sequences, listed


def _check_size(index: str, expected: int, sequences: int) -> None:
    size = os.stat(index).st_size
    if size == expected + sequences and sequences:
        raise DataError(f"{index} is of a multimodal data set: only plain tokens can be read")
    if size != expected:
        raise DataError(f"{index} has {size:,} bytes, its header says {expected:,}: copy it anew")


@dataclass(frozen=True, slots=True)
class _Ends:
    """Ends of documents, found through two lists. Where no documents are listed, each sequence is one."""

    index: str
    lengths: npt.NDArray[np.int32]
    pointers: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]
    width: int

    def __len__(self) -> int:
        return len(self.documents) - 1 if len(self.documents) > 1 else len(self.pointers)

    def between(self, start: int, stop: int) -> Ints:
        # The end of a sequence is where the next one begins; of the last, the end of all.
        first, last = (bisect_mapped(self.pointers, bound * self.width) for bound in (start, stop))
        whole = self._total <= stop * self.width
        if len(self.documents) <= 1:
            return self._ends_of(np.arange(first, last + whole))
        # Documents are over with their last sequence: those that end with sequence first to last + whole.
        low, high = (bisect_mapped(self.documents, bound - 1) for bound in (first, last + whole))
        return self._ends_of(self.documents[low:high])

    @property
    def _total(self) -> int:
        return int(self.pointers[-1]) + int(self.lengths[-1]) * self.width

    def _ends_of(self, over: Ints) -> Ints:
        inner = over[over < len(self.pointers)]
        ends = self.pointers[inner] // self.width
        return np.append(ends, np.full(len(over) - len(inner), self._total // self.width, np.int64))

    def check(self) -> None:
        for first in range(0, len(self.pointers), _CHECKED_AT_ONCE):
            stop = first + _CHECKED_AT_ONCE
            places, lengths = self.pointers[first : stop + 1], self.lengths[first:stop].astype(np.int64)
            steps = np.diff(places)
            if (lengths < 0).any() or (steps != lengths[: len(steps)] * self.width).any() or self.pointers[0] != 0:
                raise DataError(
                    f"{self.index}: the places of its sequences are not what their lengths add up to; "
                    "the file is damaged (old versions wrote such above 2^31 bytes): preprocess the text again"
                )
        check_ascending(self.documents, self.index)
        if len(self.documents) > 1 and (self.documents[0], self.documents[-1]) != (0, len(self.pointers)):
            raise DataError(
                f"{self.index}: its documents do not cover its {len(self.pointers):,} sequences; copy it anew"
            )
