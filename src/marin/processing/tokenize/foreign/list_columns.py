"""A column of lists of ids, in Arrow or Parquet: as one flat array and offsets, and what of other columns matters.

Hugging Face datasets may have more columns per document. Two of them say that an id of ``input_ids`` is not to be
learned: ``attention_mask`` is 0 and ``labels`` is -100 there. Such ids are refused: nobody would notice that
they are trained on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from marin.errors import DataError
from marin.processing.tokenize.foreign.flat import AnyInts

COLUMN = "input_ids"
MASKED = {"attention_mask": 0, "labels": -100}
"""Columns that mask ids, and by which value."""


def has_column(file: str, schema_of: Any) -> bool:
    """Whether a file has the column, or can't be read, so that opening it will say why."""
    try:
        return COLUMN in schema_of(file).names
    except (pa.ArrowInvalid, OSError):
        return True


def check_type(file: str, schema: Any) -> None:
    """Raise ``DataError`` unless the column holds lists of integers."""
    if COLUMN not in schema.names:
        raise DataError(f"{file} has no column {COLUMN}; it has {', '.join(schema.names) or 'none'}")
    kind = schema.field(COLUMN).type
    if not _is_list(kind) or not pa.types.is_integer(kind.value_type):
        raise DataError(f"{file}: {COLUMN} is {kind}, and lists of integers are needed: tokenize the text again")


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def flat_column(file: str, lists: Any, name: str = COLUMN) -> tuple[AnyInts, AnyInts]:
    """The ids of all rows one after the other, and where each row begins in it, from whatever number on."""
    if lists.null_count:
        row = lists.is_null().index(pa.scalar(value=True)).as_py()
        raise DataError(f"{file}: row {row:,} of a batch of {len(lists):,} has null for {name}: leave such rows out")
    if pa.types.is_fixed_size_list(lists.type):
        size = lists.type.list_size
        values, offsets = lists.flatten(), np.arange(0, (len(lists) + 1) * size, size, dtype=np.int64)
    else:
        values, offsets = lists.values, lists.offsets.to_numpy(zero_copy_only=True)
    first, last = int(offsets[0]), int(offsets[-1])
    values = values.slice(first, last - first)
    if values.null_count:
        raise DataError(f"{file}: {values.null_count:,} values within {name} are null: leave such rows out")
    return values.to_numpy(zero_copy_only=True), offsets


def masking_columns(schema: Any) -> list[str]:
    """Which columns of ``schema`` may mask ids: a label per document is none."""
    return [name for name in MASKED if name in schema.names and _is_list(schema.field(name).type)]


def check_unmasked(file: str, name: str, lists: Any, offsets: AnyInts) -> None:
    """Raise ``DataError`` if the column ``name`` masks an id of lists that have these ``offsets``."""
    if pa.types.is_boolean(lists.type.value_type):
        lists = lists.cast(pa.list_(pa.int8()))
    values, own = flat_column(file, lists, name)
    if not np.array_equal(own - own[0], offsets - offsets[0]):
        raise DataError(f"{file}: {name} has other lengths than {COLUMN}: tokenize the text again, without {name}")
    masked = values == MASKED[name]
    if masked.any():
        raise DataError(
            f"{file}: {name} is {MASKED[name]} for {int(masked.sum()):,} ids of {COLUMN}, which are padding or not "
            f"to be learned: cut padding off, or remove {name} to learn all ids"
        )
