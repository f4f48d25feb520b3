"""How a running step says how far it is.

A step function calls ``report``; whoever watches the step (a terminal, a log, a file that the supervisor reads)
installs a sink. Without one, reports go nowhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass

from marin.execution.ambient import setting


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step is: ``done`` of ``total`` (0: not known) ``unit``, and a short ``note`` such as ``loss 3.21``."""

    done: float
    total: float
    unit: str
    note: str = ""


Sink = Callable[[Progress], None]

_SINK: ContextVar[Sink | None] = ContextVar("marin_progress_sink", default=None)
_PROCESS_SINK: list[Sink] = []
"""For threads that a step starts itself, in a process that runs this one step: they don't see ``_SINK``."""


def report(done: float, total: float = 0, unit: str = "", note: str = "") -> None:
    """Say how far the running step is. Cheap: call it as often as you like, it is thinned out where it is shown."""
    sink = _SINK.get() or (_PROCESS_SINK[-1] if _PROCESS_SINK else None)
    if sink is not None:
        sink(Progress(done, total, unit, note))


def progress_sink(sink: Sink) -> AbstractContextManager[None]:
    """Send the reports made inside to ``sink``."""
    return setting(_SINK, sink)


@contextlib.contextmanager
def process_progress_sink(sink: Sink) -> Generator[None]:
    """Send all reports of this process to ``sink``, from whichever thread: for a process that runs one step."""
    _PROCESS_SINK.append(sink)
    try:
        yield
    finally:
        _PROCESS_SINK.remove(sink)
