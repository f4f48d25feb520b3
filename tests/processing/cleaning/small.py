"""Small documents for the tests of the steps that prepare text, and a way to read what these made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet

from marin.processing.cleaning.build import filter_documents, normalize
from marin.processing.cleaning.document_set import DocumentSet
from marin.processing.cleaning.steps import DocumentFunction, DocumentInput, FilterConfig, NormalizeConfig
from marin.processing.sources import FileSource, files

POEMS = ["Roses are red", "Veilchen sind blau\r\n", "東京\u2028\u0000 👩‍🚀", " ", "e\u0301", "é"]

_OF_INPUT = {"text_key", "keep", "is_document_set", "on_bad_record", "max_bad_fraction"}


def write_documents(path: Path, texts: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def normalizing(output_path: Path, source: FileSource | Path, **changes: Any) -> NormalizeConfig:
    given, rest = _split(source, changes)
    return NormalizeConfig(output_path=str(output_path), documents=given, **rest)


def normalized(output_path: Path, source: FileSource | Path, **changes: Any) -> DocumentSet:
    return normalize(normalizing(output_path, source, **changes))


def filtered(output_path: Path, source: FileSource | Path, function: DocumentFunction, **changes: Any) -> DocumentSet:
    given, rest = _split(source, changes)
    return filter_documents(FilterConfig(output_path=str(output_path), documents=given, **rest), function)


def _split(source: FileSource | Path, changes: dict[str, Any]) -> tuple[DocumentInput, dict[str, Any]]:
    given = {key: value for key, value in changes.items() if key in _OF_INPUT}
    rest = {key: value for key, value in changes.items() if key not in _OF_INPUT}
    return DocumentInput(source=source if isinstance(source, FileSource) else files(source), **given), rest


def rows(folder: Path) -> list[dict[str, Any]]:
    """The documents of a set, in order."""
    shards = sorted(folder.glob("part-*.parquet"))
    return [row for shard in shards for row in pyarrow.parquet.read_table(shard).to_pylist()]


def texts(folder: Path) -> list[str]:
    return [row["text"] for row in rows(folder)]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``, by relative name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
