"""SIGTERM and Ctrl-C while training: noted at once, obeyed between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from marin.execution.signals import in_this_process


class StopRequested(Exception):  # not an error: a request, answered by saving
    """A signal asked the training to stop."""


class Interrupts:
    """Notes SIGTERM and SIGINT inside its ``with`` block. A second signal acts as it would have without.

    Off the main thread no handler can be installed: then periodic checkpoints are the only guard.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.signal(number, in_this_process(self._note))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def check(self) -> None:
        """Raise ``StopRequested`` if a signal has come."""
        if self.received is not None:
            raise StopRequested

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.received = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
