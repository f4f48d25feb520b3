"""What the readers of all formats share: the fields that are asked for, and what is said of a record without them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, cast

from marin.processing.near import near_of

_SEPARATORS = frozenset(";\t|")
_MOST_NAMES = 100
"""Fields of a record that are looked at for the one that was meant."""

Fit: TypeAlias = Callable[[tuple[Any, ...]], Any]
Accept: TypeAlias = Callable[[Any], Any]
Make: TypeAlias = Callable[[Any, int], Any]
"""Makes of what ``Fit`` returned, and of the bytes consumed, what a reader yields."""


class Absent(Enum):
    """The type of ``ABSENT``."""

    ABSENT = "ABSENT"


ABSENT: Final = Absent.ABSENT
"""Stands for the value of a key that a record does not have."""


class Unfit(Exception):
    """Raised for a record that can't be used, by its reader or by a ``fit``: never leaves ``read_rows``.

    ``reason`` is what such records are counted under; ``expected`` completes "expected …".
    """

    def __init__(self, reason: str, expected: str) -> None:
        super().__init__(reason, expected)
        self.reason, self.expected = reason, expected


class Inexact(Exception):
    """Raised by a ``fit`` for numbers so large that a reader may have rounded them: it is asked again with exact ones.

    ``record``: what it returns if these are the numbers after all. Never leaves ``read_rows``.
    """

    def __init__(self, record: Any) -> None:
        super().__init__(record)
        self.record = record


class Row(NamedTuple):
    """What was asked for of one record, and how many bytes of its piece have been read so far."""

    values: tuple[Any, ...]
    consumed: int


def accept_object(keys: Sequence[str], fit: Fit) -> Accept:
    """A function from a decoded record to what ``fit`` makes of the fields that ``keys`` name.

    A field whose name is the whole key goes before nested ones that its dots lead to.
    """
    paths = [(key, key.split(".")) for key in keys]

    def accept(record: Any) -> Any:
        if not isinstance(record, dict):
            raise Unfit("wrong type", f"an object with {', '.join(map(repr, keys))}")
        fields = cast("dict[str, Any]", record)
        values = tuple(_field(fields, key, parts) for key, parts in paths)
        return fit_or_name(keys, values, fit, fields)

    return accept


def accepted_exactly(accept: Accept, decode: Callable[[], Any]) -> Any:
    """What ``accept``, which has raised ``Inexact``, makes of the record as ``decode`` gives it exactly."""
    try:
        return accept(decode())
    except Inexact as as_they_are:
        return as_they_are.record


def accept_text(key: str, fit: Fit) -> Accept:
    """As ``accept_object`` with one key, for a ``fit`` that returns a text as it is, which goes faster."""
    accept = accept_object((key,), fit)

    def accept_text(record: Any) -> Any:
        if type(record) is dict and type(value := cast("dict[str, Any]", record).get(key)) is str:
            return value
        return accept(record)

    return accept_text


def fit_or_name(keys: Sequence[str], values: tuple[Any, ...], fit: Fit, fields: Mapping[str, Any]) -> Any:
    """What ``fit`` makes of ``values``. Where one is absent and missed, the error lists the names in ``fields``, which
    may lead to further ones, and those that its key may be a slip for."""
    try:
        return fit(values)
    except Unfit as fault:
        absent = [key for key, value in zip(keys, values, strict=True) if value is ABSENT]
        if not absent:
            raise
        has = ", ".join(fields) or "nothing"
        near = _near(absent[0], tuple(itertools.islice(_dotted(fields), _MOST_NAMES)))
        hint = f"; did you mean {near}?" if near else ""
        raise Unfit(fault.reason, f"{fault.expected} (it has {has[:200]}{hint})") from None


def kind(value: object) -> str:
    """What a value is called in a message.

    >>> kind([]), kind(None), kind(0.5)
    ('a list', 'null', 'a number')
    """
    return _KINDS.get(type(value).__name__, type(value).__name__)


_KINDS = {
    "NoneType": "null",
    "dict": "an object",
    "list": "a list",
    "str": "text",
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
}


def _dotted(fields: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The names of all fields, with those of objects that hold others."""
    yield from (f"{above}{name}" for name in fields)
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _dotted(cast("Mapping[str, Any]", value), f"{above}{name}.")


@functools.lru_cache(maxsize=64)  # the same for most records of a file, of which many may be left out
def _near(key: str, names: tuple[str, ...]) -> str:
    # A header whose separator is no comma is one name, which nobody means.
    return near_of(key, [name for name in names if not _SEPARATORS & set(name)])


def _field(fields: dict[str, Any], key: str, parts: list[str]) -> Any:
    if key in fields:
        return fields[key]
    value: Any = fields
    for part in parts:
        value = value.get(part, ABSENT) if isinstance(value, dict) else ABSENT
    return value
