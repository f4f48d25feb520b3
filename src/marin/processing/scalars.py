"""Numbers that a user gives: those of Python and those of numpy, which say of themselves that they are numbers.

A truth value is none, though Python counts with it.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any, TypeVar, cast

T = TypeVar("T")


def finite_number(value: object) -> float | None:
    """``value`` as a number of Python; ``None``: it is no finite number.

    >>> finite_number(2), finite_number(True), finite_number(float("nan")), finite_number("2")
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole_number(value: object) -> int | None:
    """``value`` as a whole number of Python; ``None``: it is of another type, also if it is whole.

    >>> whole_number(2), whole_number(True), whole_number(2.0)
    (2, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return None
    return int(value)


def plain_number(value: T) -> T:
    """A number of numpy as the number of Python that it stands for; anything else as it is.

    So that both give one fingerprint, and can be written as JSON.
    """
    number: Any = value
    if isinstance(number, bool) or type(number) in (int, float) or not isinstance(number, numbers.Real):
        return value
    try:
        return cast("T", int(number) if isinstance(number, numbers.Integral) else float(number))
    except OverflowError:
        return value


def with_plain_numbers(config: Any) -> None:
    """Do so with all fields of a dataclass, and in those that are tuples; to be called by its ``__post_init__``."""
    for spec in dataclasses.fields(config):
        value: Any = getattr(config, spec.name)
        plain = tuple(map(plain_number, value)) if type(value) is tuple else plain_number(value)
        object.__setattr__(config, spec.name, plain)
