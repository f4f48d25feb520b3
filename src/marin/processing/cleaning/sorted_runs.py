"""Rows of whole numbers in files: runs that are sorted by their first column, of which a range is read quickly.

What does not fit into memory is sorted run by run when it is written, and read range by range: the rows of one range
are all there, and few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = npt.NDArray[np.uint64]
"""Columns by rows."""

_TYPE = np.dtype("<u8")


def run_bytes(rows: Rows) -> bytes:
    """One run as it is in a file: column after column, so that a search in the first one reads nothing else."""
    return np.ascontiguousarray(rows, _TYPE).tobytes()


def read_range(path: str, runs: Sequence[int], columns: int, first: int, last: int) -> Iterator[Rows]:
    """Of each run of the file, the rows whose first column is from ``first`` to ``last``. ``runs``: their lengths."""
    if not sum(runs):
        return
    data = np.memmap(path, _TYPE, "r")
    start = 0
    for length in runs:
        run = data[start : start + columns * length].reshape(columns, length)
        keys = run[0]
        begin = int(np.searchsorted(keys, np.uint64(first), "left"))
        end = int(np.searchsorted(keys, np.uint64(last), "right"))
        if begin < end:
            yield np.array(run[:, begin:end])
        start += columns * length
