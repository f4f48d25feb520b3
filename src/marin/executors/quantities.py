"""Amounts as people write them: ``"16GB"``, ``"2h"``."""

from __future__ import annotations

import math
import re
from typing import Any

from marin.errors import InvalidResourcesError

_DECIMAL = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_BYTES = {**_DECIMAL, **_BINARY}
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

_NUMBER = r"\d{1,18}(?:\.\d{1,9})?"
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)", re.ASCII)
_PART = re.compile(rf"({_NUMBER}) ?(min|[smhd])(?![a-z])", re.ASCII)
_LOOSE_PART = re.compile(
    rf"({_NUMBER})\s*(?:(s)ec\w*|(m)in\w*|(h)(?:rs?|ours?)|(d)ays?|([smhd]))", re.ASCII | re.IGNORECASE
)


def parse_size(amount: Any, what: str) -> int:
    """Bytes of a number, or of text such as ``"16GB"`` (10⁹ each) or ``"512MiB"`` (2²⁰ each). ``what`` is its name.

    >>> parse_size("1.5kB", "memory"), parse_size("2KiB", "memory")
    (1500, 2048)
    """
    choices = "give bytes, or text such as '16GB' (10^9 bytes each) or '512MiB' (2^20 bytes each)"
    if isinstance(amount, int) and not isinstance(amount, bool):
        found = amount
    elif isinstance(amount, str):
        match = _SIZE.fullmatch(amount)
        if match is None or match[2] not in _BYTES:
            raise InvalidResourcesError(f"{what}={amount!r} is not an amount of bytes:{_meant_size(amount)} {choices}")
        found = int(float(match[1]) * _BYTES[match[2]]) if "." in match[1] else int(match[1]) * _BYTES[match[2]]
    else:
        raise InvalidResourcesError(f"{what}={amount!r} is {type(amount).__name__}, not an amount of bytes: {choices}")
    if not 0 < found < 2**63:
        raise InvalidResourcesError(f"{what}={amount!r} is not an amount that a machine can have: {choices}")
    return found


def parse_duration(amount: Any, what: str) -> float:
    """Seconds of a number, or of text such as ``"90s"``, ``"30min"``, ``"2h"``, ``"1d"`` or ``"1h30m"``.

    >>> parse_duration("1h30m", "timeout"), parse_duration(0.5, "timeout")
    (5400.0, 0.5)
    """
    choices = "give seconds, or text such as '90s', '30min', '2h', '1d' or '1h30m'"
    if isinstance(amount, int | float) and not isinstance(amount, bool):
        found = float(amount) if abs(amount) < 2**63 else math.inf
    elif isinstance(amount, str):
        parts = list(_PART.finditer(amount))
        if not parts or "".join(part[0] for part in parts) != amount:
            raise InvalidResourcesError(f"{what}={amount!r} is not a time:{_meant_duration(amount)} {choices}")
        found = sum(float(part[1]) * _SECONDS[part[2]] for part in parts)
    else:
        raise InvalidResourcesError(f"{what}={amount!r} is {type(amount).__name__}, not a time: {choices}")
    if not 0 < found < 1e10:
        raise InvalidResourcesError(f"{what}={amount!r} is not a time above 0 that anybody can wait for: {choices}")
    return found


def show_size(amount: int) -> str:
    """``amount`` bytes, for people.

    >>> show_size(16 * 10**9), show_size(512 * 2**20), show_size(7)
    ('16 GB', '537 MB', '7 B')
    """
    # What would be rounded to 1000 of one unit is 1 of the next.
    unit = next((unit for unit in ("PB", "TB", "GB", "MB", "kB") if amount >= 0.9995 * _DECIMAL[unit]), "B")
    # The digits of .3g would be rounded up to a thousand, and be written as a power of ten.
    return f"{amount / _DECIMAL[unit]:.3g} {unit}" if amount < 999.5 * 10**15 else f"{amount / 10**15:,.0f} PB"


def show_duration(seconds: float) -> str:
    """``seconds`` as one would write them.

    >>> show_duration(7200), show_duration(90), show_duration(0.5)
    ('2h', '90s', '0.5s')
    """
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.10g}s"


def _meant_size(amount: str) -> str:
    match = re.fullmatch(rf"\s*({_NUMBER})\s*([kmgtp]?)(i?)b?(?:ytes?)?\s*", amount, re.ASCII | re.IGNORECASE)
    if match is None or not (match[2] or match[3]):
        return ""
    letter = match[2].upper()
    unit = f"{letter}iB" if match[3] else ("kB" if letter == "K" else f"{letter}B")
    return f" did you mean '{match[1]}{unit}'? Otherwise" if unit in _BYTES else ""


def _meant_duration(amount: str) -> str:
    match = _LOOSE_PART.fullmatch(amount.strip())
    # "1ms" is no minute.
    unit = next((found.lower() for found in match.groups()[1:] if found), "") if match is not None else ""
    return "" if match is None else f" did you mean '{match[1]}{unit}'? Otherwise"
