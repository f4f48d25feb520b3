"""In processes of their own: what is set stays set."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from marin.processing.heap import keep_heap_small
if sys.argv[1] == "kept small":
    keep_heap_small()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
first = bytearray(30_000_000)  # when it is freed, glibc puts blocks of this size into the heap from then on
del first
before = resident()
blocks = [bytearray(10_000_000) for _ in range(10)]
above = bytearray(100_000)
for block in blocks:
    block[::4096] = bytes(len(block[::4096]))
del block, blocks
print(resident() - before)
"""


def left(how: str) -> int:
    """Bytes that a process still holds of a hundred megabytes that it has freed."""
    return int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="no mallopt in this C library: NOT held here")
def test_what_is_freed_goes_back_to_the_system():
    assert left("as it is") > 50_000_000, "the test has lost its point"
    assert left("kept small") < 20_000_000
