"""Read what a test has written, in one line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import zstandard

from marin.processing.bad_records import BadRecords
from marin.processing.documents import read_documents
from marin.processing.input_files import input_files
from marin.processing.pieces import Piece
from marin.processing.sources import FileFormat, files

POEMS = ["Roses are red", "Veilchen sind blau\r\n", "東京\u2028\u0000", " "]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstandard.ZstdCompressor().compress,
}


def texts(path: Path | str, *, text_key: str = "text", format: FileFormat | None = None) -> list[str]:
    """The texts of all files that ``path`` means. The first bad record is an error."""
    return _texts(path, text_key, format, BadRecords())


def skipping(path: Path | str, *, text_key: str = "text") -> tuple[list[str], dict[str, int], list[str]]:
    """The texts, the counts of the bad records that were left out, and an example of each kind."""
    bad = BadRecords("skip")
    good = _texts(path, text_key, None, bad)
    return good, {each.reason: each.count for each in bad.counts}, [each.example for each in bad.counts]


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


LINES = jsonl(*({"text": poem} for poem in POEMS))


def _texts(path: Path | str, text_key: str, format: FileFormat | None, bad: BadRecords) -> list[str]:
    found = input_files(files(path, format=format))
    return [document.text for file in found for document in read_documents(Piece(file=file), text_key, bad)]
