"""Names that are nearly the one that was looked for."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Sequence

_SHOWN = 3


def near_names(folder: str, name: str) -> str:
    """Entries of ``folder`` that ``name``, a name or a glob, may be a slip for, quoted; empty if there are none.

    >>> near_names("/", "ect")
    "'etc'"
    """
    entries = list[str]()
    with contextlib.suppress(OSError):
        entries = sorted(os.listdir(folder), key=os.fsencode)
    return near_of(name, entries)


def near_of(name: str, names: Sequence[str]) -> str:
    """Those of ``names`` that ``name`` may be a slip for, quoted; empty if there are none.

    >>> near_of("trian", ["test", "train"])
    "'train'"
    """
    by_lower = {known.lower(): known for known in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=_SHOWN, cutoff=0.6)
    return ", ".join(repr(by_lower[known]) for known in found)
