"""The memory of a process and of all that it has started, looked at while they run."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

PAUSE_SECONDS = 0.02
"""Between two looks. A look at four processes takes the kernel about as long, so what is watched is not timed."""


class MemoryWatch:
    """Looks at the tree of ``pid`` until it is left; then ``peak_mb`` is the most that it took at any look.

    What is summed up is PSS: memory that processes share, such as a mapped file, counts once.
    """

    def __init__(self, pid: int) -> None:
        self.peak_mb = 0.0
        self._known = {pid}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="memory watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.is_set():
            self._known |= _descendants(self._known)
            self.peak_mb = max(self.peak_mb, sum(map(_pss_mb, self._known)))
            self._over.wait(PAUSE_SECONDS)


def _descendants(roots: set[int]) -> set[int]:
    """What runs and was started by one of ``roots``, or by one of those. A process keeps its place when its parent ends
    only if it was seen before: so the roots are all that were ever seen."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent(int(name))) is not None:
            children.setdefault(parent, []).append(int(name))
    found, waiting = set[int](), list(roots)
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting += new
    return found


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The name in parentheses may hold anything: the fields begin behind the last one.
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _pss_mb(pid: int) -> float:
    """0 of a process that has ended, or that is only waited for."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024 / 1e6
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0.0
    return 0.0
