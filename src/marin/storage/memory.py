"""A store in this process's memory, for tests and for what need not outlive the process."""

from __future__ import annotations

import threading
from typing import final

from marin.storage.store import Names, checked_path


@final
class MemoryStore:
    """A ``Store`` that threads share. Records and leases work in it as on a disk.

    It is no ``BuildStore`` on purpose: what a step function writes are files, and they have a path. For a store that
    is gone afterwards give a run a temporary folder, as ``marin.testing.temporary_store`` does.

    >>> store = MemoryStore()
    >>> store.compare_and_swap("poems/dev/.artifact.json", None, b"{}")
    True
    >>> store.list("poems")
    ['dev/']
    """

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def read(self, path: str) -> bytes | None:
        return self._files.get(checked_path(path))

    def write(self, path: str, data: bytes) -> None:
        with self._lock:
            self._files[checked_path(path)] = bytes(data)

    def compare_and_swap(self, path: str, expected: bytes | None, new: bytes) -> bool:
        with self._lock:
            if self._files.get(checked_path(path)) != expected:
                return False
            self._files[path] = bytes(new)
            return True

    def list(self, path: str) -> Names:
        above = f"{checked_path(path)}/" if path else ""
        with self._lock:
            below = [file.removeprefix(above) for file in self._files if file.startswith(above)]
        return sorted({f"{first}/" if slash else first for first, slash, _ in (name.partition("/") for name in below)})

    def delete(self, path: str) -> None:
        above = f"{checked_path(path)}/"
        with self._lock:
            for file in [file for file in self._files if file == path or file.startswith(above)]:
                del self._files[file]
