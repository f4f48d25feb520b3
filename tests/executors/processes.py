"""What tests need to know of processes: who carries a mark in the environment, and whether that comes true in time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MARK = "MARIN_TEST_MARK"

PATIENCE = 240.0
"""How long to wait, in seconds, for what must happen some time: longer than any busy machine takes."""


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


def end_marked(mark: str) -> None:
    """Kill whatever of it is left."""
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself meanwhile
            os.kill(pid, signal.SIGKILL)


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


def eventually(condition: Callable[[], T], *, seconds: float = PATIENCE) -> T:
    """What ``condition`` gives, as soon as that is true; fail if it is not within ``seconds``."""
    give_up_at = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < give_up_at, f"still not so after {seconds} s"
        time.sleep(0.01)
    return found
