"""Trackers that fail in every way."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from marin.training.trackers.tracker import TrackedRun

NEVER = threading.Event()
"""Waiting for it is hanging for ever."""


@dataclass
class Sink:
    """Keeps its rows. ``hangs`` and ``raises``: where it does so, of ``open``, ``log``, ``close``."""

    hangs: str = ""
    raises: str = ""
    fault: BaseException = field(default_factory=lambda: OSError("no network"))
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    closed: bool = False
    abandoned: bool = False

    def opened(self) -> Sink:
        self._at("open")
        return self

    def log(self, row: Mapping[str, Any]) -> None:
        self._at("log")
        self.rows.append(row)

    def close(self) -> None:
        self._at("close")
        self.closed = True

    def abandon(self) -> None:
        self.abandoned = True

    def _at(self, place: str) -> None:
        if self.hangs == place:
            NEVER.wait()
        if self.raises == place:
            raise self.fault


OPENED: list[tuple[Sink, TrackedRun]] = []


@dataclass(frozen=True, kw_only=True)
class SinkConfig:
    tracker: ClassVar[str] = "tests.training.trackers.sinks:open_sink"

    hangs: str = ""
    raises: str = ""


@dataclass(frozen=True, kw_only=True)
class MissingConfig:
    tracker: ClassVar[str] = "tests.training.trackers.sinks:no_such_function"


@dataclass(frozen=True, kw_only=True)
class BrokenConfig:
    tracker: ClassVar[str] = "tests.training.trackers.no_such_module:open_sink"


def open_sink(config: SinkConfig, run: TrackedRun) -> Sink:
    sink = Sink(hangs=config.hangs, raises=config.raises)
    OPENED.append((sink, run))
    return sink.opened()
