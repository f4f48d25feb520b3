"""Values as people look at them: short, on one line, without secrets, whatever they are."""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import re
import reprlib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from marin.execution.record_fields import record_fields
from marin.execution.redaction import (
    REDACTED,
    is_secret_key,
    is_secret_pair,
    redact_text,
    redact_values,
    secret_values,
)
from marin.execution.results import to_json

MAX_WIDTH = 120
"""Longest text of one value, in characters."""

MAX_MEMBERS = 6
"""So many members of a list, a dict or a set are shown, and the rest is an ellipsis."""

MAX_FIELDS = 20

# As a class prints its own fields: password='…', or of a dict in it, 'password': b'…'.
_NAMED_TEXT = re.compile(r"""(\b\w{1,100})(['"]?\s?[=:]\s?[(\[{]?b?)('[^']*'|"[^"]*"|\w+\('[^']*'\))""")


def abbreviated(value: object, name: str = "") -> str:
    """Short text of ``value``, which is called ``name``. Never raises.

    >>> abbreviated({"api_key": "abc", "losses": list(range(100))})
    "{'api_key': '***', 'losses': [0, 1, 2, 3, 4, 5, …]}"
    """
    if is_secret_key(name) and value:
        return repr(REDACTED)
    return _clean(_Short().repr(value))


def abbreviated_fields(value: object, names: Iterable[str]) -> str:
    """``Class(name=…, …)`` with the fields ``names`` of ``value``. Never raises."""
    shown = [f"{name}={abbreviated(getattr(value, name, None), name)}" for name in names]
    more = [f"… {len(shown) - MAX_FIELDS} more"] if len(shown) > MAX_FIELDS else []
    return f"{type(value).__qualname__.rpartition('.')[2]}({', '.join(shown[:MAX_FIELDS] + more)})"


def _clean(text: str) -> str:
    text = _NAMED_TEXT.sub(_without_secret, redact_text(text.replace("\n", " "), secret_values(os.environ)))
    return text if len(text) <= 2 * MAX_WIDTH else f"{text[: 2 * MAX_WIDTH - 1]}…"


def _without_secret(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2]}{REDACTED!r}" if is_secret_key(match[1]) else match[0]


def readable(value: Any, name: str) -> Any:
    """``value``, which is called ``name``, as records show it: JSON without secrets, or short text."""
    try:
        return redact_values({name: to_json(value)}, secret_values(os.environ))[name]
    except (TypeError, ValueError, RecursionError):
        return abbreviated(value, name)


def _named_fields(value: Any) -> Sequence[tuple[str, Any]] | None:
    """What a value that is printed with the names of its fields is made of."""
    cls = type(value)
    if isinstance(value, tuple) and isinstance(names := getattr(cls, "_fields", None), tuple):
        return list(zip(cast("tuple[str, ...]", names), cast("tuple[Any, ...]", value), strict=False))
    if cls is types.SimpleNamespace:
        return list(vars(value).items())
    if cls is functools.partial:
        call = cast("functools.partial[Any]", value)
        arguments = [(f"[{index}]", each) for index, each in enumerate(call.args)]
        return [("func", call.func), *arguments, *call.keywords.items()]
    if isinstance(value, type) or dataclasses.is_dataclass(value):
        return None
    fields = record_fields(value)
    return None if fields is None else [(name, inner) for name, inner, _ in fields]


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.fillvalue = "…"
        self.maxlevel = 4
        self.maxstring = self.maxother = self.maxlong = MAX_WIDTH
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = self.maxdict = MAX_MEMBERS

    def repr1(self, x: Any, level: int) -> str:
        try:
            if dataclasses.is_dataclass(x) and not isinstance(x, type) and type(x).__repr__ is not object.__repr__:
                return self._dataclass(x, level)
            if isinstance(x, Mapping) and type(x).__name__ != "dict":
                return f"{type(x).__name__}({self.repr_dict(cast('Mapping[Any, Any]', x), level)})"
            if (fields := _named_fields(x)) is not None:
                return self._fields(type(x).__name__, fields, level)
            if isinstance(x, list | tuple) and len(pair := cast("Sequence[Any]", x)) == 2 and is_secret_pair(pair[0]):
                return self._pair(pair, level)
            return super().repr1(x, level)
        except Exception:  # noqa: BLE001  # whatever its own __repr__ does, it can be looked at
            return f"<{type(x).__qualname__}>"

    def repr_dict(self, x: Mapping[Any, Any], level: int) -> str:
        if level <= 0:
            return "{…}"
        shown = [
            f"{self.repr1(key, level - 1)}: {self._named(key, inner, level)}"
            for key, inner in list(x.items())[:MAX_MEMBERS]
        ]
        return "{" + ", ".join(shown + ["…"] * (len(x) > MAX_MEMBERS)) + "}"

    def _fields(self, name: str, fields: Sequence[tuple[str, Any]], level: int) -> str:
        if level <= 0:
            return f"{name}(…)"
        shown = [f"{field}={self._named(field, inner, level)}" for field, inner in fields[:MAX_MEMBERS]]
        return f"{name}({', '.join(shown + ['…'] * (len(fields) > MAX_MEMBERS))})"

    def _pair(self, pair: Sequence[Any], level: int) -> str:
        text = f"{self.repr1(pair[0], level - 1)}, {REDACTED!r}"
        return f"[{text}]" if isinstance(pair, list) else f"({text})"

    def _dataclass(self, x: Any, level: int) -> str:
        own = vars(type(x)).get("__repr__")
        if own is None or getattr(own, "__wrapped__", None) is None:  # not the one that @dataclass makes
            return self.repr_instance(x, level)
        fields = [(spec.name, getattr(x, spec.name, None)) for spec in dataclasses.fields(x) if spec.repr]
        return self._fields(type(x).__name__, fields, level)

    def _named(self, name: object, value: object, level: int) -> str:
        if type(name) is bytes:
            name = name.decode(errors="replace")
        elif isinstance(name, enum.Enum):
            name = name.name
        if isinstance(name, str) and value and is_secret_key(name):
            return repr(REDACTED)
        return self.repr1(value, level - 1)
