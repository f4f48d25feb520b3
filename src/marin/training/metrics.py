"""``metrics.jsonl``: what was measured at each step, always kept beside the parameters."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

import msgspec

from marin.processing.durable import write_whole


class MetricsLog:
    """Appends one JSON object per line. Opening it drops what lies after ``last_step``: that will be measured again."""

    def __init__(self, path: str, *, last_step: int) -> None:
        self.lines = [line for line in _whole_lines(path) if line["step"] <= last_step]
        write_whole(path, b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines))
        self._file = open(path, "ab")  # noqa: SIM115  # open for the whole training; closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, line: dict[str, Any]) -> None:
        """Append ``line``, which has ``step``; readers see it at once."""
        self.lines.append(line)
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """Make what was written survive a crash of the machine."""
        os.fsync(self._file.fileno())


def _whole_lines(path: str) -> list[dict[str, Any]]:
    """The complete lines of the file; a kill may have left a torn last one."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line) for line in content.split(b"\n")[:-1]]
