"""Read the rows of Parquet and Arrow files: the columns that are asked for, in slices."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

from marin.processing.bad_records import BadRecords
from marin.processing.compression import Damaged
from marin.processing.pieces import Piece
from marin.processing.records import ABSENT, Fit, Inexact, Make, Unfit, fit_or_name
from marin.processing.table_files import open_arrow, open_parquet, told_as_damage

_SLICE_BYTES = 4 << 20
_SLICE_ROWS = 1024
"""Values that are Python objects at once, by their size and by their number."""
_LEAST_ROWS = 16
"""Rows decoded at once, even where columns that are not asked for make a row large."""


def read_parquet(piece: Piece, keys: Sequence[str], fit: Fit, make: Make, bad: BadRecords) -> Iterator[Any]:
    """The rows of the row groups of ``piece``."""
    rows = _Rows(piece, keys, fit, make, bad)
    try:
        with open_parquet(piece.file) as parquet:
            with told_as_damage(piece.file):
                schema, metadata = parquet.schema_arrow, parquet.metadata
                paths = [_path(schema, key) for key in keys]
                columns = sorted({".".join(path) for path in paths if path})
                groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
                counts = [group.num_rows for group in groups]
                chosen = range(piece.start, len(counts) if piece.stop is None else piece.stop)
                steps = [max(_LEAST_ROWS, _step(counts[number], groups[number].total_byte_size)) for number in chosen]
            rows.begin(schema, lambda: sum(counts[: piece.start]))
            per_row = piece.file.size / max(sum(counts), 1)
            for number, step in zip(chosen, steps, strict=True):
                batches = parquet.iter_batches(step, row_groups=[number], columns=columns, use_threads=False)
                for values, count in rows.columns(iter(batches), paths):
                    yield from rows.read(values, count, lambda row: int(row * per_row))
    except Damaged as fault:
        rows.refuse_rest(fault)


def read_arrow(piece: Piece, keys: Sequence[str], fit: Fit, make: Make, bad: BadRecords) -> Iterator[Any]:
    """The rows of the record batches of ``piece``."""
    rows = _Rows(piece, keys, fit, make, bad)
    try:
        with open_arrow(piece.file) as reader, told_as_damage(piece.file):
            schema, count = reader.schema, getattr(reader, "num_record_batches", None)
            paths = [_path(schema, key) for key in keys]
            # An empty list of fields would mean all of them.
            fields = sorted({schema.names.index(path[0]) for path in paths if path}) or [0]
        rows.begin(schema, partial(_rows_before, piece, fields))
        with open_arrow(piece.file, fields) as reader:
            numbers = range(piece.start, (count or 0) if piece.stop is None else piece.stop)
            batches = iter(reader) if count is None else map(reader.get_batch, numbers)
            for number, (values, size) in enumerate(rows.columns(batches, paths), start=1):
                told = piece.file.size * number // count if count else 0
                yield from rows.read(values, size, lambda _, told=told: told)
    except Damaged as fault:
        rows.refuse_rest(fault)


def _rows_before(piece: Piece, fields: Sequence[int]) -> int | None:
    """Counted when there is something to tell, and not before. ``None`` if a batch before the piece is damaged."""
    if not piece.start:
        return 0
    with contextlib.suppress(Damaged), open_arrow(piece.file, fields) as reader, told_as_damage(piece.file):
        return sum(reader.get_batch(number).num_rows for number in range(piece.start))
    return None


class _Broken(NamedTuple):
    """A value that can't be a Python object."""

    reason: str
    expected: str
    excerpt: str


class _Rows:
    """Hands out rows as they come, and says which one is bad."""

    def __init__(self, piece: Piece, keys: Sequence[str], fit: Fit, make: Make, bad: BadRecords) -> None:
        self._piece, self._keys, self._fit, self._make, self._bad = piece, keys, fit, make, bad
        self._schema: Any = pa.schema([])
        self._before: Callable[[], int | None] = int
        self._row = 0

    def begin(self, schema: Any, before: Callable[[], int | None]) -> None:
        """``before`` tells how many rows the file has before the piece."""
        self._schema, self._before = schema, before

    def columns(self, batches: Iterator[Any], paths: Sequence[list[str] | None]) -> Iterator[tuple[list[Any], int]]:
        """What ``paths`` lead to in each batch, and its number of rows. Raises ``Damaged`` for what is not whole."""
        while True:
            with told_as_damage(self._piece.file):
                batch = next(batches, None)
                if batch is not None:
                    batch.validate()
                columns = [] if batch is None else [_column(batch, path) for path in paths]
                for column in columns:
                    _check(column)
            if batch is None:
                return
            yield columns, batch.num_rows

    def read(self, columns: Sequence[Any], count: int, told: Callable[[int], int]) -> Iterator[Any]:
        """``told`` gives the bytes consumed after so many rows of the piece."""
        make = self._make
        step = _step(count, max((column.nbytes for column in columns if column is not None), default=0))
        for start in range(0, count, step):
            size = min(step, count - start)
            lists = [_values(column, start, size) for column in columns]
            fit = self._fit if all(readable for _, readable in lists) else self._fit_readable
            for values in zip(*(each for each, _ in lists), strict=True):
                self._row += 1
                try:
                    record = fit(values)
                except Inexact as as_they_are:  # a column has the numbers that it has
                    record = as_they_are.record
                except Unfit as fault:
                    self._refuse_row(values, fault)
                    continue
                yield make(record, told(self._row))
                del record, values  # they may be large, and the next are made before these names are bound anew

    def refuse_rest(self, fault: Damaged) -> None:
        """The position is that of the first row that is lost."""
        position = partial(self._position, self._row + 1)
        self._bad.refuse_rest(fault.reason, self._piece.file, position, fault.expected, "")

    def _position(self, row: int) -> str:
        before = self._before()
        return f"row {row} from batch {self._piece.start} on" if before is None else f"row {before + row}"

    def _fit_readable(self, values: tuple[Any, ...]) -> Any:
        for value in values:
            if isinstance(value, _Broken):
                raise Unfit(value.reason, value.expected)
        return self._fit(values)

    def _refuse_row(self, values: tuple[Any, ...], fault: Unfit) -> None:
        if ABSENT in values:
            try:
                fit_or_name(self._keys, values, self._fit, _nested(self._schema))
            except Unfit as named:
                fault = named
        excerpt = ", ".join(_brief(value) for value in values if value is not ABSENT)
        position = partial(self._position, self._row)
        self._bad.refuse(fault.reason, self._piece.file, position, fault.expected, excerpt)


def _nested(fields: Any) -> dict[str, Any]:
    """The fields of a schema, or of a struct, as an object that has them would be."""
    return {field.name: _nested(field.type) if pa.types.is_struct(field.type) else None for field in fields}


def _path(schema: Any, key: str) -> list[str] | None:
    """The names that lead to the column ``key``, or to a field of a struct column. ``None``: there is none.

    Raises ``Damaged`` if there are two: nobody knows which one is meant.
    """
    for name in {key, key.split(".")[0]}:
        if (count := schema.names.count(name)) > 1:
            raise Damaged("damaged", f"one column {name!r}, and there are {count}: rename the others")
    if key in schema.names:
        return [key]
    first, *others = key.split(".")
    if first not in schema.names:
        return None
    inner = schema.field(schema.names.index(first)).type
    for name in others:
        if not pa.types.is_struct(inner) or inner.get_field_index(name) < 0:
            return None
        inner = inner.field(name).type
    return [first, *others]


def _column(batch: Any, path: list[str] | None) -> Any:
    if path is None:
        return None
    column = batch.column(batch.schema.names.index(path[0]))
    for name in path[1:]:
        # With the nulls of the struct itself, which its field alone does not have.
        column = pyarrow.compute.call_function("struct_field", [column], pyarrow.compute.StructFieldOptions(name))
    return column


def _check(column: Any) -> None:
    """Raise an error of pyarrow for what would make it read outside of its memory."""
    if column is None:
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as fault:
        # One by one, texts that are not UTF-8 are told with their row.
        if "UTF8" not in str(fault):
            raise
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column.view(pa.binary() if pa.types.is_string(column.type) else pa.large_binary()).validate(full=True)


def _values(column: Any, start: int, count: int) -> tuple[list[Any], bool]:
    """Python objects, and whether all of them could be made."""
    if column is None:
        return [ABSENT] * count, True
    part = column.slice(start, count)
    try:
        return part.to_pylist(), True
    except (ValueError, ArithmeticError, pa.ArrowException):
        return [_value(scalar) for scalar in part], False


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError as fault:
        excerpt = fault.object[:200].decode(errors="backslashreplace")
        return _Broken("invalid UTF-8", f"UTF-8 ({fault.reason} at its byte {fault.start})", excerpt)
    except (ValueError, ArithmeticError, pa.ArrowException) as fault:
        return _Broken("wrong type", f"a value that Python has ({fault})", str(scalar.type))


def _brief(value: Any) -> str:
    if isinstance(value, _Broken):
        return value.excerpt
    return value[:200] if isinstance(value, str) else reprlib.repr(value)


def _step(rows: int, size: int) -> int:
    """How many of ``rows``, which have ``size`` bytes, to take at once."""
    return max(1, min(_SLICE_ROWS, rows * _SLICE_BYTES // max(size, 1)))
