"""Names that are nearly the one that was looked for."""

from __future__ import annotations

import contextlib
import difflib
import os

_SHOWN = 3


def near_names(folder: str, name: str) -> str:
    """Entries of ``folder`` that ``name``, a name or a glob, may be a slip for, quoted; empty if there are none.

    >>> near_names("/", "ect")
    "'etc'"
    """
    entries = list[str]()
    with contextlib.suppress(OSError):
        entries = sorted(os.listdir(folder), key=os.fsencode)
    by_lower = {entry.lower(): entry for entry in entries}
    found = difflib.get_close_matches(name.lower(), by_lower, n=_SHOWN, cutoff=0.6)
    return ", ".join(repr(by_lower[entry]) for entry in found)
