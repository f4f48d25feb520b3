"""Caches of other tools for the tests: what the tools wrote, and small writers of their documented layouts."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.tokenizers import parse_tokenizer
from tests.processing.tokenize.foreign.texts import TEXTS, ids

GOLDEN = Path(__file__).parent / "golden"


def documents_of(name: str, split: str) -> list[list[int]]:
    """The ids of a golden cache, by document."""
    if name != "datatrove":
        return [ids(text) for text in TEXTS[split]]
    flat, lengths = load_encoder(parse_tokenizer(GOLDEN / name / "tokenizer.json")).encode(TEXTS[split])
    return [document.tolist() for document in np.split(flat, np.cumsum(lengths)[:-1])]


def copy_of(name: str, target: Path) -> Path:
    """A golden cache that a test may damage."""
    shutil.copytree(GOLDEN / name, target)
    return target


def write_nanogpt(file: Path, tokens: Sequence[int]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.array(tokens, "<u2").tofile(file)


def write_llmc(file: Path, tokens: Sequence[int], *, wide: bool = False, **changes: int) -> None:
    """``changes``: other values of ``magic``, ``version`` or ``count`` in the header."""
    fields = {"magic": 20240801 if wide else 20240520, "version": 7 if wide else 1, "count": len(tokens)} | changes
    header = struct.pack("<3i", *fields.values()).ljust(1024, b"\0")
    file.write_bytes(header + np.array(tokens, "<u4" if wide else "<u2").tobytes())


def write_megatron(
    prefix: Path, sequences: Sequence[Sequence[int]], documents: Sequence[int], *, code: int = 8
) -> None:
    """``documents``: how many sequences are over at each bound between documents, 0 first."""
    kind = {1: "u1", 4: "<i4", 5: "<i8", 6: "<f8", 8: "<u2"}[code]
    lengths = np.array([len(sequence) for sequence in sequences], "<i4")
    places = (np.cumsum(lengths, dtype="<i8") - lengths) * np.dtype(kind).itemsize
    header = struct.pack("<9sQBQQ", b"MMIDIDX", 1, code, len(sequences), len(documents))
    flat = [id_ for sequence in sequences for id_ in sequence]
    prefix.with_suffix(".idx").write_bytes(
        header + lengths.tobytes() + places.astype("<i8").tobytes() + np.array(documents, "<i8").tobytes()
    )
    prefix.with_suffix(".bin").write_bytes(np.array(flat, kind).tobytes())
