"""In what two recipes differ: the settings of a training, as a checkpoint has them and as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NOTHING = object()


def differences(old: Any, new: Any, told: Any, path: str = "") -> Iterator[str]:
    """What differs. A key that only ``new`` has counts if it is in ``told``: else it is at what its absence means."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            inner = told.get(key, _NOTHING) if isinstance(told, dict) else _NOTHING
            if key in old or inner is not _NOTHING:
                yield from differences(old.get(key), new.get(key), inner, f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        inside = told if isinstance(told, list) and len(told) == len(new) else [_NOTHING] * len(new)
        for number, (before, after, inner) in enumerate(zip(old, new, inside, strict=True)):
            yield from differences(before, after, inner, f"{path}[{number}]")
    elif old != new:
        yield f"{path}: {old!r} → {new!r}"
