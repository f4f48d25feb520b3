"""Ends what is left of a job whose run and guard were killed together, so that nobody was there to do it.

A process is known by the environment that it was started with, which its children inherit: that finds also those that
have a session and a parent of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

_SECONDS = 5.0
"""How long to try. Only a process that hangs in the kernel survives SIGKILL for longer."""


def end_processes(variable: str, token: str) -> tuple[int, bool]:
    """SIGKILL all processes on this machine that were started with ``token`` among the words of ``variable``.

    The words are joined by commas. Returns how many processes there were, and whether none is left for sure: not so
    where the system does not show processes.
    """
    ended = set[int]()
    give_up_at = time.monotonic() + _SECONDS
    while (found := _processes_with(variable, token)) and time.monotonic() < give_up_at:
        for pid in found:
            # It may have ended meanwhile.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                ended.add(pid)
        time.sleep(0.005)
    return len(ended), found is not None and not found


def _processes_with(variable: str, token: str) -> list[int] | None:
    """Without this process. None: the system does not tell."""
    found: list[int] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    start = f"{variable}=".encode()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue  # another user's, or it has ended
        if pid != os.getpid() and any(
            word.startswith(start) and token.encode() in word[len(start) :].split(b",") for word in words
        ):
            found.append(pid)
    return found
