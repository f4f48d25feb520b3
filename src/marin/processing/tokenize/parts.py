"""Cut the input into parts: a piece of a large file, or a group of consecutive small ones.

A part is read, encoded and written on its own, and becomes one file of the cache. How the input is cut depends on the
input alone, so that any number of workers makes the same files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marin.errors import DataError
from marin.processing.input_files import InputFile, current_stamp, file_sha256
from marin.processing.inputs import Inputs
from marin.processing.pieces import Piece, pieces_of
from marin.processing.tokenize.manifest import TRAIN, VALIDATION, InputRecord
from marin.processing.tokenize.remote_chunks import is_remote

_SMALLEST, _LARGEST, _WANTED = 16_000_000, 256_000_000, 1024
_READ_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Part:
    """Pieces of the input that become one file of the cache. ``size``: their bytes."""

    number: int
    split: str
    pieces: tuple[Piece, ...]
    size: int


def plan_parts(train: Inputs, validation: Inputs | None, part_bytes: int | None) -> list[Part]:
    """Parts of about ``part_bytes``; ``None``: by the size of the input. A validation file is not trained on.

    Raises ``DataError`` if nothing is left to train on.
    """
    held = {_which(file) for file in validation.files} if validation else set[object]()
    kept = [file for file in train.files if _which(file) not in held]
    if not kept:
        raise DataError(
            f"every file of {train.description} is also a validation file: nothing is left to train on. Name fewer "
            "with validation=, or hold documents of all files out with held_out=0.01"
        )
    total = sum(file.size for file in train.files)
    wanted = part_bytes or min(max(total // _WANTED, _SMALLEST), _LARGEST)
    groups = [
        *_groups(kept, wanted, TRAIN),
        *_groups(validation.files if validation else (), wanted, VALIDATION),
    ]
    return [
        Part(number=number, split=split, pieces=tuple(piece for piece, _ in group), size=sum(size for _, size in group))
        for number, (group, split) in enumerate(groups)
    ]


def input_record(piece: Piece) -> InputRecord:
    """What is recorded of a piece: which file, and what is in it."""
    file = piece.file
    if is_remote(file.path):
        digest, stamp = "", file.stamp
    elif piece.stop is None and piece.start == 0:
        digest, stamp = file_sha256(file.path), None
    elif file.format == "jsonl":
        digest, stamp = _range_sha256(file.path, piece.start, piece.stop), None
    else:  # row groups lie scattered: the stamp of the file has to do
        digest, stamp = "", file.stamp
    return InputRecord(name=file.name, bytes=file.size, sha256=digest, start=piece.start, stop=piece.stop, stamp=stamp)


def check_unchanged(pieces: Sequence[Piece]) -> None:
    """Raise ``DataError`` if a file is another one than when the parts were planned."""
    for file in dict.fromkeys(piece.file for piece in pieces):
        if file.stamp is not None and current_stamp(file) != file.stamp:
            raise DataError(f"{file.shown} changed while it was read: run again when nobody writes to it")


def _groups(files: Sequence[InputFile], wanted: int, split: str) -> Iterator[tuple[list[tuple[Piece, int]], str]]:
    group, size = list[tuple[Piece, int]](), 0
    for file in files:
        pieces = pieces_of(file, wanted)
        for piece in pieces:
            bytes_ = _size(piece, len(pieces))
            if group and (size + bytes_ > wanted or len(pieces) > 1):
                yield group, split
                group, size = [], 0
            group.append((piece, bytes_))
            size += bytes_
    if group:
        yield group, split


def _size(piece: Piece, pieces: int) -> int:
    if piece.file.format == "jsonl" and piece.stop is not None:
        return piece.stop - piece.start
    return piece.file.size // pieces


def _which(file: InputFile) -> object:
    """Equal for one file under several names, be they paths or links of either kind."""
    if is_remote(file.path):
        return file.path
    try:
        status = os.stat(file.path)
    except OSError:  # whoever reads it tells
        return file.path
    return status.st_dev, status.st_ino


def _range_sha256(path: str, start: int, stop: int | None) -> str:
    """Of the range, and of what its last line has behind it, if that line begins within the range."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        end = os.fstat(stream.fileno()).st_size if stop is None else stop
        stream.seek(max(start - 1, 0))
        last = stream.read(1) if start else b"\n"
        begins, left = False, end - start
        while left > 0 and (data := stream.read(min(left, _READ_BYTES))):
            begins = begins or last.endswith(b"\n") or b"\n" in data[:-1]
            digest.update(data)
            left, last = left - len(data), data
        while begins and not last.endswith(b"\n") and (data := stream.read(_READ_BYTES)):
            last = data[: data.find(b"\n") + 1] or data
            digest.update(last)
    return digest.hexdigest()
