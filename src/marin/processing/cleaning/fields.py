"""Turn a field of a record, whatever it holds, into text: columns of one type, for all records of all sources."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any, cast

import orjson

from marin.processing.records import ABSENT, Unfit

_EXACT = 2.0**63
"""An integer from here on may have become a float when its JSON was read."""

_MOST_OF_ORJSON = range(-(2**63), 2**64)


def field_text(key: str, value: Any) -> str | None:
    """Text as it is, and of all else its JSON. ``None``: absent, or null.

    What JSON does not have, NaN and infinities, is written as Python's ``json`` does. Raises ``Unfit`` for bytes, and
    for what is nested too deeply.

    >>> field_text("url", "a"), field_text("ids", [1, 2.5]), field_text("count", 2**70), field_text("score", math.inf)
    ('a', '[1,2.5]', '1180591620717411303424', 'Infinity')
    """
    if value is ABSENT or value is None:
        return None
    if isinstance(value, str):
        return value
    is_plain = True
    for each in _leaves(value):
        if isinstance(each, bytes | bytearray | memoryview):
            raise Unfit("wrong type", f"what JSON has in {key!r}, not bytes: convert them, or leave it out of keep=")
        number = each if type(each) in (int, float) else 0
        is_plain &= math.isfinite(number) if type(number) is float else number in _MOST_OF_ORJSON
    try:
        if is_plain:
            with contextlib.suppress(TypeError):  # nested deeper than it goes
                return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as fault:
        raise Unfit("wrong type", f"what JSON can hold in {key!r} ({fault})") from None


def has_large(value: Any) -> bool:
    """Whether a number in it may have been an integer that its reader rounded."""
    if isinstance(value, str):
        return False
    return any(type(each) is float and _EXACT <= abs(each) < math.inf for each in _leaves(value))


def _leaves(value: Any) -> list[Any]:
    """The values in it that hold no others."""
    found, open_values = list[Any](), [value]
    while open_values:
        each = open_values.pop()
        if isinstance(each, dict):
            open_values.extend(cast("dict[Any, Any]", each).values())
        elif isinstance(each, list | tuple):
            open_values.extend(cast("list[Any]", each))
        else:
            found.append(each)
    return found
