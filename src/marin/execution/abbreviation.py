"""Values as people look at them: short, on one line, without secrets, whatever they are."""

from __future__ import annotations

import dataclasses
import os
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

from marin.execution.redaction import REDACTED, is_secret_key, redact_text, secret_values

MAX_WIDTH = 120
"""Longest text of one value, in characters."""

MAX_MEMBERS = 6
"""So many members of a list, a dict or a set are shown, and the rest is an ellipsis."""

MAX_FIELDS = 20


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
    text = redact_text(text.replace("\n", " "), secret_values(os.environ))
    return text if len(text) <= 2 * MAX_WIDTH else f"{text[: 2 * MAX_WIDTH - 1]}…"


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

    def _dataclass(self, x: Any, level: int) -> str:
        own = vars(type(x)).get("__repr__")
        if own is None or getattr(own, "__wrapped__", None) is None:  # not the one that @dataclass makes
            return self.repr_instance(x, level)
        if level <= 0:
            return f"{type(x).__name__}(…)"
        fields = [spec.name for spec in dataclasses.fields(x) if spec.repr]
        shown = [f"{name}={self._named(name, getattr(x, name, None), level)}" for name in fields[:MAX_MEMBERS]]
        return f"{type(x).__name__}({', '.join(shown + ['…'] * (len(fields) > MAX_MEMBERS))})"

    def _named(self, name: object, value: object, level: int) -> str:
        if isinstance(name, str) and value and is_secret_key(name):
            return repr(REDACTED)
        return self.repr1(value, level - 1)
