"""``metrics.jsonl``: what was measured at each step, always kept beside the parameters."""

from __future__ import annotations

import logging
import os
from types import TracebackType
from typing import Any, Self, TypedDict

import msgspec

from marin.processing.durable import write_whole
from marin.storage.faults import translated_faults

_LOG = logging.getLogger(__name__)


class MetricsLog:
    """Appends one JSON object per line. Opening it drops what lies after ``last_step``: that will be measured again."""

    def __init__(self, path: str, *, last_step: int) -> None:
        self._path = path
        self.lines = [line for line in _whole_lines(path) if line["step"] <= last_step]
        write_whole(path, b"".join(msgspec.json.encode(line) + b"\n" for line in self.lines))
        self._file = open(path, "ab")  # noqa: SIM115  # open for the whole training; closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with translated_faults(self._path, writing=True):
            self._file.close()

    def write(self, line: dict[str, Any]) -> None:
        """Append ``line``, which has ``step``; readers see it at once."""
        self.lines.append(line)
        with translated_faults(self._path, writing=True):
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """Make what was written survive a crash of the machine."""
        with translated_faults(self._path, writing=True):
            os.fsync(self._file.fileno())


def _whole_lines(path: str) -> list[dict[str, Any]]:
    """The complete lines of the file; a kill may have left a torn last one, a crash of the machine a spoiled one."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return []
    lines = list[dict[str, Any]]()
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            msgspec.json.decode(line, type=_Line)
            lines.append(msgspec.json.decode(line))
        except msgspec.DecodeError as fault:
            _LOG.warning("%s, line %d: left out, it can't be read (%s)", path, number, fault)
    return lines


class _Line(TypedDict):
    step: int
