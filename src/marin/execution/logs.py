"""The logs of attempts: where the parts of a long one lie, how it ends, and how many are kept."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

KEPT_LOGS = 10
"""Of how many attempts an artifact keeps the logs."""

_PART = re.compile(r"(.*\.log)(?:\.[01])?", re.DOTALL)


@dataclass(frozen=True)
class AttemptLog:
    """The log of one attempt: ``path`` as records have it, relative to the prefix, and the ``place`` where it lies."""

    path: str
    place: str

    def prepare(self, keep: Collection[str]) -> None:
        """Make its folder, and leave there only the logs of the last attempts and those of these names."""
        folder = os.path.dirname(self.place)
        with contextlib.suppress(OSError):  # who writes the log says why it can't be written
            os.makedirs(folder, exist_ok=True)
        remove_old_logs(folder, keep)

    def write(self, text: str) -> None:
        """Put ``text`` there if that is possible: what it tells matters more than that it is kept."""
        with contextlib.suppress(OSError):
            Path(self.place).write_text(text, encoding="utf-8", errors="backslashreplace")

    def recorded(self) -> str | None:
        """What a record says of it: None if there is none."""
        return self.path if os.path.exists(self.place) else None


def log_parts(path: str) -> list[str]:
    """The files of the log at ``path`` that are there, in the order in which they were written."""
    return [part for part in (f"{path}.0", f"{path}.1", path) if os.path.exists(part)]


def read_log_end(path: str, start: int, limit: int) -> str:
    """The last ``limit`` bytes of what was printed since the log was ``start`` bytes long."""
    with contextlib.suppress(OSError):
        parts = log_parts(path)
        first = max(start, os.path.getsize(path) - limit) if len(parts) == 1 else max(0, os.path.getsize(path) - limit)
        end = _read(path, first)
        # It may just have begun a new part.
        if len(parts) > 1 and len(end) < limit:
            before = parts[-2]
            end = _read(before, max(0, os.path.getsize(before) - (limit - len(end)))) + end
        return end.decode("utf-8", "replace")
    return ""


def remove_old_logs(folder: str, keep: Collection[str]) -> None:
    """Leave the logs of the last attempts, and those whose file names are in ``keep``. Nothing else is touched."""
    with contextlib.suppress(OSError):
        found = {name: match[1] for name in os.listdir(folder) if (match := _PART.fullmatch(name))}
        # Build ids begin with their time.
        newest = set(sorted(set(found.values()))[-KEPT_LOGS:])
        for name, log in found.items():
            if log not in newest and log not in keep:
                os.unlink(os.path.join(folder, name))


def _read(path: str, start: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(start)
        return file.read()
