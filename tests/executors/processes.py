"""What tests need to know of processes: who carries a mark in the environment, and whether that comes true in time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MARK = "MARIN_TEST_MARK"


def marked(mark: str, *, variable: str = MARK) -> list[int]:
    """Every process, also a zombie's heir or a daemon, that was started with ``variable`` set to ``mark``."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if f"{variable}={mark}".encode() in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                continue
    return found


def zombies_of(parent: int) -> list[int]:
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] == b"Z" and int(fields[1]) == parent:
                found.append(int(entry))
    return found


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def eventually(condition: Callable[[], object], *, seconds: float = 20.0) -> None:
    """Return as soon as ``condition`` holds; fail if it does not within ``seconds``."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"still not so after {seconds} s"
        time.sleep(0.01)
