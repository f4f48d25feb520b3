"""Read the documents of a piece of input, with where each was and the further fields that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from marin.processing.bad_records import BadRecords
from marin.processing.cleaning.document_set import OWN_COLUMNS, SOURCE, TEXT
from marin.processing.cleaning.fields import field_text, has_large
from marin.processing.cleaning.steps import DocumentInput
from marin.processing.compression import Damaged
from marin.processing.documents import Inexact, no_text, read_documents, read_rows
from marin.processing.inputs import Inputs
from marin.processing.pieces import Piece
from marin.processing.table_files import open_parquet


class Found(NamedTuple):
    """A document as it was read. ``consumed``: bytes of its piece so far."""

    text: str
    source: str
    fields: tuple[str | None, ...]
    consumed: int


def kept_columns(given: DocumentInput, inputs: Inputs) -> tuple[tuple[str, str], ...]:
    """The further columns that are kept, each with its key: of a set of documents all that it has, unless some were
    asked for."""
    if given.keep or not given.is_document_set:
        return given.keep
    try:
        with open_parquet(inputs.files[0]) as parquet:
            return tuple((name, name) for name in parquet.schema_arrow.names if name not in OWN_COLUMNS)
    except Damaged:
        return ()  # who reads it says so


def read_found(
    piece: Piece, given: DocumentInput, keep: tuple[tuple[str, str], ...], bad: BadRecords
) -> Iterator[Found]:
    """The documents of ``piece``, in order. A source is the name of the file, ``#``, and which record of it, from 1.

    Where a large file was cut, records count from the beginning of the piece, which stands between as ``@``: a byte of
    JSON lines, a row group of Parquet, a record batch of Arrow.
    """
    keys = tuple(key for _, key in keep)
    if given.is_document_set:
        for (text, source, *fields), consumed in read_rows(piece, (TEXT, SOURCE, *keys), _fit_of_set(keys), bad):
            yield Found(text, source, tuple(fields), consumed)
        return
    where = f"{piece.file.name}@{piece.start}#" if piece.start else f"{piece.file.name}#"
    before, skipped = _count(bad), 0
    if keys:
        rows = read_rows(piece, (given.text_key, *keys), _fit(given.text_key, keys), bad)
    else:
        rows = (((text,), consumed) for text, consumed in read_documents(piece, given.text_key, bad))
    for number, ((text, *fields), consumed) in enumerate(rows, start=1):
        if given.on_bad_record == "skip":
            skipped = _count(bad) - before
        yield Found(text, f"{where}{number + skipped}", tuple(fields), consumed)
        del text  # it may be large, and the next is made before this name is bound anew


def _count(bad: BadRecords) -> int:
    return sum(each.count for each in bad.counts)


def _fit(text_key: str, keys: Sequence[str]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def fit(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if type(values[0]) is not str:
            raise no_text(values[0], text_key)
        return _with_fields(values[:1], keys, values[1:])

    return fit


def _fit_of_set(keys: Sequence[str]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    def fit(values: tuple[Any, ...]) -> tuple[Any, ...]:
        for key, value in zip((TEXT, SOURCE), values, strict=False):
            if type(value) is not str:
                raise no_text(value, key)
        return _with_fields(values[:2], keys, values[2:])

    return fit


def _with_fields(own: tuple[Any, ...], keys: Sequence[str], values: tuple[Any, ...]) -> tuple[Any, ...]:
    texts = tuple(field_text(key, value) for key, value in zip(keys, values, strict=True))
    if any(has_large(value) for value in values):
        raise Inexact((*own, *texts))
    return (*own, *texts)
