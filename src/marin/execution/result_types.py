"""What types an artifact's fields can have, and what of a recorded result a type would leave out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import inspect

_JSON_TYPES = (str, int, float, bool, list, dict, type(None))
_NO_KEYS = (
    inspect.BoolType,
    inspect.NoneType,
    inspect.CollectionType,
    inspect.TupleType,
    inspect.DictType,
    inspect.DataclassType,
    inspect.NamedTupleType,
    inspect.StructType,
)
_RECORDS = inspect.DataclassType, inspect.StructType, inspect.NamedTupleType, inspect.TypedDictType
_HELD = "fields are JSON values, dates, enums, paths, or dataclasses of them"


def from_json(kind: type, value: Any) -> Any:
    """A value of JSON as one of ``kind``, where that is text of its own class or a path; else as it is."""
    return kind(value) if isinstance(value, str) and _is_text(kind) else value


def _is_text(kind: type) -> bool:
    return issubclass(kind, str | PurePath)


def field_fault(kind: type) -> str | None:
    """Why no result of ``kind`` could ever be read back from a record, or None.

    >>> @dataclasses.dataclass
    ... class Wave:
    ...     phase: complex
    >>> field_fault(Wave)
    "has a field 'phase' of complex, which no record can hold: fields are JSON values, dates, enums, paths, or ..."
    """
    try:
        info = inspect.type_info(kind)
    except TypeError as fault:
        return f"has a field that no record can hold ({fault}): {_HELD}"
    except (NameError, AttributeError):  # it refers to a class that is not there yet
        return None
    for path, what in _unreadable(info, "", set()):
        return f"has a field {path.lstrip('.')!r} of {what}, which no record can hold: {_HELD}"
    return None


def _unreadable(info: inspect.Type, path: str, seen: set[type]) -> Iterator[tuple[str, str]]:
    """Where in a type something lies that JSON does not become again, and what it is."""
    if isinstance(info, _RECORDS):
        for field in () if info.cls in seen else info.fields:
            yield from _unreadable(field.type, f"{path}.{field.name}", seen | {info.cls})
    match info:
        case inspect.CustomType(cls=kind):
            if not _is_readable(kind):
                yield path, kind.__qualname__
        case inspect.DictType(key_type=key, value_type=value):
            if isinstance(key, _NO_KEYS):
                yield path, "a dict whose keys are neither text nor numbers"
            yield from _unreadable(key, path, seen)
            yield from _unreadable(value, path, seen)
        case inspect.TupleType(item_types=members):
            for member in members:
                yield from _unreadable(member, path, seen)
        case inspect.CollectionType(item_type=member):
            yield from _unreadable(member, path, seen)
        case _:  # also a union: one of its other types may be what is always returned
            pass


def _is_readable(kind: type) -> bool:
    try:
        return _is_text(kind) or any(issubclass(each, kind) for each in _JSON_TYPES)
    except TypeError:  # a protocol that does not answer
        return True


def left_out(value: Any, recorded: Any) -> tuple[str, str] | None:
    """Where in ``recorded`` a key lies that ``value``, which was read from it, has not; and the class that lacks it.

    >>> @dataclasses.dataclass
    ... class Split:
    ...     tokens: int
    >>> left_out({"train": [Split(7)]}, {"train": [{"tokens": 7, "bytes": 30}]})
    ('.train[0].bytes', 'Split')
    """
    if isinstance(recorded, dict):
        return _left_out_of_object(value, recorded)
    if isinstance(recorded, list):
        return _left_out_of_array(value, recorded)
    return None


def _left_out_of_object(value: Any, recorded: dict[str, Any]) -> tuple[str, str] | None:
    names = _attributes(type(value))
    if names is None and not isinstance(value, Mapping):
        return None
    if names is None and len(value) == len(recorded):  # the keys may be numbers by now; their order is the same
        values = zip(value.values(), recorded.values(), strict=True)
    else:
        held = value if names is None else {key: getattr(value, name, None) for key, name in names.items()}
        for key in recorded:
            if key not in held:
                return f".{key}", type(value).__name__ if names is not None else "its TypedDict"
        values = ((held[key], inner) for key, inner in recorded.items())
    return _first((f".{key}", left_out(*pair)) for key, pair in zip(recorded, values, strict=True))


def _left_out_of_array(value: Any, recorded: list[Any]) -> tuple[str, str] | None:
    if isinstance(value, set | frozenset):  # in no order: each must fit one of the members
        fits = ([left_out(held, inner) for held in value] for inner in recorded if isinstance(inner, dict | list))
        return _first(("[…]", None if None in found else found[0]) for found in fits if found)
    if isinstance(value, msgspec.Struct):
        recorded = recorded[1:] if value.__struct_config__.tag is not None else recorded
        if len(recorded) > len(value.__struct_fields__):
            return f"[{len(value.__struct_fields__)}]", type(value).__name__
        value = [getattr(value, name) for name in value.__struct_fields__]
    members = zip(value, recorded, strict=False) if isinstance(value, Iterable) else ()
    return _first((f"[{index}]", left_out(held, inner)) for index, (held, inner) in enumerate(members))


def _first(found: Iterable[tuple[str, tuple[str, str] | None]]) -> tuple[str, str] | None:
    return next(((where + inner[0], inner[1]) for where, inner in found if inner is not None), None)


def _attributes(kind: type) -> dict[str, str] | None:
    """The attributes of a class of records by their names in JSON, None for any other class."""
    if issubclass(kind, msgspec.Struct):
        names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        tag = kind.__struct_config__.tag_field
        return {**names, tag: ""} if tag is not None else names
    if dataclasses.is_dataclass(kind):
        return {name: name for name in kind.__dataclass_fields__}
    if isinstance(specs := getattr(kind, "__attrs_attrs__", None), tuple):
        return {spec.name: spec.name for spec in specs}
    return None
