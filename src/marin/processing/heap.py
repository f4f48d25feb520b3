"""Give freed memory back to the system."""

from __future__ import annotations

import contextlib
import ctypes

MMAP_BYTES = 4 << 20
"""Larger blocks are a mapping of their own, which is gone when they are freed. By itself glibc raises this when such a
block is freed, up to 32 MiB, and what is freed later stays in the heap: 150 MB with a large vocabulary."""

TRIM_BYTES = 4 << 20
"""So much may be free at the top of the heap. Less takes more processor time, as memory that comes back is cleared."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""``M_TRIM_THRESHOLD``, ``M_MMAP_THRESHOLD`` and ``M_ARENA_MAX`` of glibc's ``malloc.h``."""


def keep_heap_small() -> None:
    """Let this process, and those that are forked from it, hold little memory that nothing uses. Does nothing where the
    C library has no ``mallopt``."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((_TRIM_THRESHOLD, TRIM_BYTES), (_MMAP_THRESHOLD, MMAP_BYTES), (_ARENA_MAX, 1)):
            mallopt(option, value)


def trim_heap() -> None:
    """Give back what is free in the heap now, such as what a compiler has left. Takes some 0.05 s."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
