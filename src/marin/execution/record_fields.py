"""The fields of the classes that people write configs with: dataclasses, and those of attrs, msgspec and pydantic.

The libraries are recognised by what is loaded, and never imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from marin.execution.naming import find

Field: TypeAlias = tuple[str, Any, Mapping[Any, Any]]
"""Name, value and metadata."""

_UNSET = object()
_NO_METADATA: Mapping[Any, Any] = {}


def record_fields(value: Any) -> list[Field] | None:
    """The fields of an instance of such a class, ``None`` for anything else. A field that was never set is left out.

    >>> record_fields(slice(1)) is None
    True
    """
    cls = type(value)
    if dataclasses.is_dataclass(cls):
        declared = {spec.name: spec.metadata for spec in dataclasses.fields(cls)}
        return [*_values(value, declared), *_undeclared(value, declared)]
    if isinstance(specs := getattr(cls, "__attrs_attrs__", None), tuple):
        return list(_values(value, {spec.name: spec.metadata for spec in specs}))
    if _is_a(cls, "msgspec", "Struct"):
        return list(_values(value, dict.fromkeys(cls.__struct_fields__, _NO_METADATA)))
    if _is_a(cls, "pydantic", "BaseModel"):
        extra: Mapping[str, Any] = value.model_extra or {}
        return [*_values(value, dict.fromkeys(cls.model_fields, _NO_METADATA)), *_plain(extra)]
    return None


def attributes(value: object) -> dict[str, Any]:
    """What an instance holds in its ``__dict__`` and its slots."""
    found = dict[str, Any](getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            attribute = f"_{cls.__name__.lstrip('_')}{name}" if private else name
            if name not in ("__dict__", "__weakref__") and (held := getattr(value, attribute, _UNSET)) is not _UNSET:
                found[attribute] = held
    return found


def _values(value: object, declared: Mapping[str, Mapping[Any, Any]]) -> Iterator[Field]:
    for name, metadata in declared.items():
        if (held := getattr(value, name, _UNSET)) is not _UNSET:
            yield name, held, metadata


def _undeclared(value: object, declared: Mapping[str, Any]) -> Iterator[Field]:
    """Public attributes that a class sets without declaring them: they differ where the config differs.

    Not those that its class computes on demand: whether a ``cached_property`` was read is no part of the config.
    """
    for name, held in getattr(value, "__dict__", {}).items():
        if name.startswith("_") or name in declared or hasattr(getattr(type(value), name, None), "__get__"):
            continue
        yield name, held, _NO_METADATA


def _plain(values: Mapping[str, Any]) -> Iterator[Field]:
    return ((name, held, _NO_METADATA) for name, held in values.items())


def _is_a(cls: type, module: str, name: str) -> bool:
    base = find(module, name)
    return isinstance(base, type) and issubclass(cls, base)
