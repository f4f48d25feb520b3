"""Cut input files into pieces that are read on their own, by several processes or by a later attempt."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from marin.processing.input_files import InputFile
from marin.processing.remote_files import can_seek
from marin.processing.sources import FileFormat, is_url
from marin.processing.table_files import batch_sizes, row_group_sizes


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a file, or all of it, if ``stop`` is ``None``.

    ``start`` and ``stop`` count bytes of plain JSON lines, where a record belongs to the piece in which its line
    begins; row groups of Parquet; record batches of an Arrow file.
    """

    file: InputFile
    start: int = 0
    stop: int | None = None


def pieces_of(file: InputFile, piece_bytes: int) -> list[Piece]:
    """Pieces of about ``piece_bytes`` on the disk, in order. The same file gives the same pieces.

    What can't be cut is one piece: compressed files, arrays, CSV, texts, Arrow streams, row groups. So is a file that
    is damaged; who reads it, says so.
    """
    count = file.size // max(piece_bytes, 1)
    if count < 2 or file.compression or file.format not in _CUTS:
        return [Piece(file=file)]
    return _CUTS[file.format](file, count, piece_bytes)


def _cut_lines(file: InputFile, count: int, piece_bytes: int) -> list[Piece]:
    del piece_bytes
    if is_url(file.path) and not can_seek(file.path):
        return [Piece(file=file)]
    bounds = [file.size * number // count for number in range(count + 1)]
    return [Piece(file=file, start=start, stop=stop) for start, stop in itertools.pairwise(bounds)]


def _cut_row_groups(file: InputFile, count: int, piece_bytes: int) -> list[Piece]:
    del count
    return _grouped(file, row_group_sizes(file), piece_bytes)


def _cut_batches(file: InputFile, count: int, piece_bytes: int) -> list[Piece]:
    del count
    return _grouped(file, batch_sizes(file), piece_bytes)


def _grouped(file: InputFile, sizes: list[int], piece_bytes: int) -> list[Piece]:
    """Runs of what can't be cut further, each as soon as it has ``piece_bytes``."""
    pieces, start, held = list[Piece](), 0, 0
    for stop, size in enumerate(sizes, start=1):
        held += size
        if held >= piece_bytes or stop == len(sizes):
            pieces.append(Piece(file=file, start=start, stop=stop))
            start, held = stop, 0
    return pieces or [Piece(file=file)]


_CUTS: dict[FileFormat, Callable[[InputFile, int, int], list[Piece]]] = {
    "jsonl": _cut_lines,
    "parquet": _cut_row_groups,
    "arrow": _cut_batches,
}
