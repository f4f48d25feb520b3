"""Numbers that a user gives: those of Python and those of numpy, which say of themselves that they are numbers.

A truth value is none, though Python counts with it.
"""

from __future__ import annotations

import math
import numbers


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
