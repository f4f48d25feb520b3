"""Files of tokens without an index: nanoGPT's, which have nothing else in them, and llm.c's, which have a header.

Neither says where its documents are: a split is one document, over all its files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from marin.errors import DataError
from marin.processing.tokenize.foreign.flat import Chunk, MappedChunk, mapped, no_end, one_document
from marin.processing.tokenize.foreign.layout import Evidence, Place

HEADER_INTS = 256
"""An llm.c file begins with so many int32: magic, version, number of tokens, and zeros."""

TYPES = {(20240520, 1): "<u2", (20240801, 7): "<u4"}
"""Of the ids, by magic and version: a vocabulary of GPT-2's size, and one of Llama 3's."""

_MAGICS = {magic for magic, _ in TYPES}
_LOOKED_AT = 4096


@dataclass(frozen=True, slots=True)
class NanogptLayout:
    """uint16 ids from the first byte to the last."""

    name: str = "nanogpt"
    looks_for: str = "X.bin without anything beside it (nanoGPT: uint16 ids)"

    def recognise(self, place: Place) -> Evidence | None:
        names = tuple(name for name in _lone_bins(place) if not _is_llmc(place, name))
        return Evidence(because=f"{names[0]} has no index and no header", names=names) if names else None

    def open(self, files: Sequence[str]) -> list[Chunk]:
        return _one_document([_open_headerless(file) for file in files], files)

    def tokenizer(self, files: Sequence[str]) -> str | None:
        del files
        return None


@dataclass(frozen=True, slots=True)
class LlmcLayout:
    """A header that gives type and number of the ids, then the ids."""

    name: str = "llmc"
    looks_for: str = "X.bin that begins with 20240520 or 20240801 (llm.c)"

    def recognise(self, place: Place) -> Evidence | None:
        names = tuple(name for name in _lone_bins(place) if _is_llmc(place, name))
        return Evidence(because=f"{names[0]} begins with a magic number of llm.c", names=names) if names else None

    def open(self, files: Sequence[str]) -> list[Chunk]:
        return _one_document([_open_with_header(file) for file in files], files)

    def tokenizer(self, files: Sequence[str]) -> str | None:
        del files
        return None


def _lone_bins(place: Place) -> list[str]:
    return [name for name in place.ending(".bin") if name.removesuffix(".bin") + ".idx" not in place.names]


def _is_llmc(place: Place, name: str) -> bool:
    start = place.beginning_of(name, 4 * HEADER_INTS)
    numbers = {int.from_bytes(start[:4], "little"), int.from_bytes(start[:4], "big")}
    # The zeros tell a header from two tokens that happen to be the magic.
    return bool(numbers & _MAGICS) and not any(start[12:])


def _one_document(arrays: Sequence[npt.NDArray[Any]], files: Sequence[str]) -> list[Chunk]:
    filled = [number for number, array in enumerate(arrays) if len(array)]
    last = filled[-1] if filled else -1
    return [
        MappedChunk(array, one_document(len(array), file) if number == last else no_end(file))
        for number, (array, file) in enumerate(zip(arrays, files, strict=True))
    ]


def _open_headerless(file: str) -> npt.NDArray[Any]:
    if (size := os.stat(file).st_size) % 2:
        raise DataError(
            f"{file} has {size:,} bytes, an odd number: it holds no uint16 ids, or is cut off; copy it anew"
        )
    array = mapped(file, "<u2")
    if _looks_wider(array[:_LOOKED_AT]):
        raise DataError(
            f"{file} seems to hold ids of 4 bytes (every second uint16 is nearly zero), nanoGPT's have 2: "
            "if it is Megatron's, put its .idx beside it"
        )
    return array


def _looks_wider(start: npt.NDArray[Any]) -> bool:
    # The upper half of an id below 2^20 is below 16. No text has such a token at every second place.
    return len(start) >= 64 and int(start[1::2].max()) < 16 <= int(start[::2].max())


def _open_with_header(file: str) -> npt.NDArray[Any]:
    size, offset = os.stat(file).st_size, 4 * HEADER_INTS
    if size < offset:
        raise DataError(f"{file} has {size:,} bytes, fewer than the header of an llm.c file: copy it anew")
    magic, version, tokens = (int(number) for number in mapped(file, "<i4", count=3))
    if magic not in _MAGICS:
        raise DataError(f"{file} is a big-endian llm.c file: only little-endian ones can be read")
    if (magic, version) not in TYPES:
        known = ", ".join(f"version {number} with magic {of}" for of, number in TYPES)
        raise DataError(f"{file} is an llm.c file of version {version} with magic {magic}; known are {known}")
    kind = np.dtype(TYPES[magic, version])
    found, rest = divmod(size - offset, kind.itemsize)
    # The header has room for 32 bits of the count.
    if rest or found % (1 << 32) != tokens % (1 << 32):
        tokens %= 1 << 32
        why = "it is cut off" if found < tokens else "there is more behind them, so that one of the two is wrong"
        raise DataError(
            f"{file} has {size:,} bytes, its header of {offset:,} bytes says {tokens:,} tokens of {kind.name}, "
            f"{offset + tokens * kind.itemsize:,} bytes in all: {why}; copy it anew"
        )
    return mapped(file, kind, offset=offset)
