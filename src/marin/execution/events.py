"""What a run tells while it goes on. A ``Reporter`` shows it: on a terminal, as plain lines, as JSON, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast

from marin.execution.failure import Failure
from marin.execution.identity import ArtifactId
from marin.execution.planning import Plan
from marin.execution.progress import Progress
from marin.execution.record import FailedTry


class Outcome(StrEnum):
    """How a step ended well."""

    BUILT = "built"
    ADOPTED = "adopted"
    REUSED = "reused"
    """Another process built it while we waited."""


@dataclass(frozen=True, kw_only=True)
class FailedStep:
    """A step that failed, where in the user's code, and its log (an absolute path)."""

    id: ArtifactId
    failure: Failure
    log: str | None
    cause: BaseException | None


class Reporter(Protocol):
    """Told about a run as it happens. Called from several threads, one call at a time."""

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None:
        """The run is about to begin. ``origin``: where the prefix comes from."""
        ...

    def started(self, id_: ArtifactId, *, log: str | None) -> None: ...

    def waiting(self, id_: ArtifactId, *, holder: str) -> None:
        """Another process builds the artifact; told once, and again when the holder changes."""
        ...

    def progressed(self, id_: ArtifactId, progress: Progress) -> None: ...

    def noted(self, id_: ArtifactId, note: str) -> None:
        """Something its author should know, such as that a dead builder's work was taken over."""
        ...

    def retrying(self, id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None:
        """A try failed; after a pause of ``seconds`` comes retry number ``retry``."""
        ...

    def finished(self, id_: ArtifactId, outcome: Outcome, *, seconds: float, path: str) -> None: ...

    def failed(self, failed: FailedStep) -> None: ...

    def blocked(self, id_: ArtifactId, *, by: ArtifactId) -> None: ...

    def stopping(self, signal_name: str) -> None:
        """A signal came: what runs is told to save its work. Told again at a second signal: what runs is killed."""
        ...

    def ended(self, *, interrupted: bool) -> None:
        """The run is over: nothing is called after this."""
        ...


class SilentReporter:
    """Shows nothing."""

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None: ...

    def started(self, id_: ArtifactId, *, log: str | None) -> None: ...

    def waiting(self, id_: ArtifactId, *, holder: str) -> None: ...

    def progressed(self, id_: ArtifactId, progress: Progress) -> None: ...

    def noted(self, id_: ArtifactId, note: str) -> None: ...

    def retrying(self, id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None: ...

    def finished(self, id_: ArtifactId, outcome: Outcome, *, seconds: float, path: str) -> None: ...

    def failed(self, failed: FailedStep) -> None: ...

    def blocked(self, id_: ArtifactId, *, by: ArtifactId) -> None: ...

    def stopping(self, signal_name: str) -> None: ...

    def ended(self, *, interrupted: bool) -> None: ...


def one_at_a_time(reporter: Reporter) -> Reporter:
    """``reporter``, called by one thread at a time."""
    return cast("Reporter", _OneAtATime(reporter))


class _OneAtATime:
    """Passes events on under a lock, so that a reporter need not think of threads."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., None]:
        method = getattr(self._reporter, name)

        def call(*args: Any, **kwargs: Any) -> None:
            with self._lock:
                method(*args, **kwargs)

        setattr(self, name, call)
        return call
