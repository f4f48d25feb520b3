"""datatrove and nanotron: ``X.ds`` with tokens and nothing else, and side files named after it.

``X.ds.index`` holds the end of each document in tokens (uint64, little-endian); ``X.ds.metadata`` is text, whose first
line is ``tokenizer|bytes per token`` and whose second is the number of tokens; ``X.ds.loss`` is one byte per token,
1 where it is learned.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from marin.errors import DataError
from marin.processing.tokenize.foreign.flat import Chunk, MappedChunk, SortedEnds, mapped, one_document
from marin.processing.tokenize.foreign.layout import Evidence, Place

_UNKNOWN = "Unknown Tokenizer"
"""What datatrove writes where it was not told."""

INDEX, METADATA, LOSS = ".index", ".metadata", ".loss"
_TYPES = {2: "<u2", 4: "<u4"}


@dataclass(frozen=True, kw_only=True)
class _Metadata:
    tokenizer: str | None = None
    width: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class DatatroveLayout:
    """uint16 or uint32 ids, with side files."""

    name: str = "datatrove"
    looks_for: str = "X.ds (datatrove, nanotron)"

    def recognise(self, place: Place) -> Evidence | None:
        sides = [name.removesuffix(side) for side in (INDEX, METADATA, LOSS) for name in place.ending(f".ds{side}")]
        names = tuple(sorted({*place.ending(".ds"), *sides}))
        return Evidence(because=f"there is {names[0]}", names=names) if names else None

    def open(self, files: Sequence[str]) -> list[Chunk]:
        return [_open(file) for file in files]

    def tokenizer(self, files: Sequence[str]) -> str | None:
        named = {_metadata(file + METADATA).tokenizer for file in files} - {None}
        if len(named) > 1:
            raise DataError(
                f"{os.path.dirname(files[0])} was made by several tokenizers, as its .ds.metadata say: "
                f"{', '.join(sorted(map(str, named)))}; keep one per folder"
            )
        return named.pop() if named else None


def _open(file: str) -> Chunk:
    if not os.path.exists(file):
        raise DataError(f"{file} is missing, of which the side files are there: copy it anew")
    size, metadata = os.stat(file).st_size, _metadata(file + METADATA)
    ends = _ends(file + INDEX) if os.path.exists(file + INDEX) else None
    last = None if ends is None else int(ends[-1]) if len(ends) else 0
    kind = _type(file, size, metadata, last)
    tokens = size // kind.itemsize
    for source, said in ((METADATA, metadata.tokens), (INDEX, last)):
        if said is not None and said != tokens:
            raise DataError(
                f"{file} holds {tokens:,} tokens of {kind.itemsize} bytes, {os.path.basename(file)}{source} says "
                f"{said:,}: one of the two is cut off or belongs to another; copy both anew"
            )
    array = mapped(file, kind)
    where = one_document(len(array), file) if ends is None else SortedEnds(ends, file + INDEX)
    if not os.path.exists(file + LOSS):
        return MappedChunk(array, where)
    if (masked := os.stat(file + LOSS).st_size) != tokens:
        raise DataError(f"{file}{LOSS} has {masked:,} bytes, one per token would be {tokens:,}: copy it anew")
    return MappedChunk(array, where, mapped(file + LOSS, np.uint8).view(np.bool_))


def _ends(file: str) -> npt.NDArray[Any]:
    if (size := os.stat(file).st_size) % 8:
        raise DataError(
            f"{file} has {size:,} bytes, which are no whole number of document ends of 8 bytes: it is cut off or "
            "damaged; copy it anew"
        )
    return mapped(file, "<i8")


def _type(file: str, size: int, metadata: _Metadata, last: int | None) -> np.dtype[Any]:
    width = metadata.width
    if width is None and last is None:
        raise DataError(
            f"{file} does not say how wide its tokens are: put {os.path.basename(file)}{METADATA} or {INDEX} beside it"
        )
    if width is None and last:
        width = size // last
    if width is None and not size:
        width = 2
    if width not in _TYPES or size % width:
        raise DataError(
            f"{file} has {size:,} bytes, which are no whole number of tokens of {width} bytes (2 and 4 are known): "
            "it is cut off or damaged; copy it anew"
        )
    return np.dtype(_TYPES[width])


def _metadata(file: str) -> _Metadata:
    if not os.path.exists(file):
        return _Metadata()
    try:
        with open(file, encoding="utf-8") as text:
            lines = text.read().splitlines()
        tokenizer, _, width = lines[0].rpartition("|") if "|" in lines[0] else (lines[0], "", "")
        return _Metadata(
            tokenizer=None if tokenizer in ("", _UNKNOWN) else tokenizer,
            width=int(width) if width else None,
            tokens=int(lines[1]) if len(lines) > 1 else None,
        )
    except (ValueError, IndexError) as fault:
        raise DataError(
            f"{file} is not what datatrove writes (tokenizer|bytes per token, then the number of tokens): {fault}; "
            "remove it, or copy it anew"
        ) from fault
