"""Shows a run: live on a terminal, as plain lines elsewhere, as JSON for programs.

A reporter never ends a run: what goes wrong while showing is said once, and the run goes on.
A little over 300 lines, as the three ways to show a run are read beside each other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, TextIO, cast

from marin.execution.ambient import Ambient
from marin.execution.events import FailedStep, Outcome, Reporter, SilentReporter
from marin.execution.failure import first_line
from marin.execution.identity import ArtifactId
from marin.execution.meter import SLOW_SECONDS, Meter, duration
from marin.execution.plan_text import SMALL_PLAN, Line, opening_lines, paint, plan_as_json, render_plan
from marin.execution.planning import Plan
from marin.execution.progress import Progress
from marin.execution.record import FailedTry
from marin.execution.redaction import shown_place
from marin.execution.tally import Tally, failure_text, retry_text

__all__ = [
    "JsonReporter",
    "PlainReporter",
    "default_reporter",
    "json_reporter",
    "plan_as_json",
    "render_plan",
    "reporting",
    "terminal_reporter",
]

PLAIN_SECONDS = 3.0
"""A step's progress is printed at most so often where there is no terminal."""

JSON_SECONDS = 0.5
"""A step's progress is one JSON line at most so often."""

_REPORTER = Ambient[Callable[[], Reporter]]("reporter")


@contextlib.contextmanager
def reporting(make: Callable[[], Reporter]) -> Generator[None]:
    """Runs that are started inside, and name no reporter, use one from ``make``: how ``--json`` reaches a script."""
    with _REPORTER.use(make):
        yield


def default_reporter() -> Reporter:
    """The one that a surrounding ``reporting`` makes, else ``terminal_reporter()``."""
    make = _REPORTER.get()
    return terminal_reporter() if make is None else make()


def terminal_reporter(stream: TextIO | None = None, *, environ: Mapping[str, str] | None = None) -> Reporter:
    """A live display if ``stream`` (stderr) is a terminal, else plain lines."""
    stream = stream if stream is not None else cast("TextIO | None", sys.stderr)
    if stream is None:  # the shell has closed it
        return SilentReporter()
    environ = environ if environ is not None else os.environ
    if not is_live_terminal(stream, environ):
        return Guarded(PlainReporter(stream))
    # rich costs more than the rest of the import together, and only a terminal needs it.
    from marin.execution.live import LiveReporter  # noqa: PLC0415

    return Guarded(LiveReporter(stream, color=not environ.get("NO_COLOR")))


def json_reporter(stream: TextIO) -> Reporter:
    """One JSON object a line on ``stream``."""
    return Guarded(JsonReporter(stream))


def is_live_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether lines of ``stream`` can be redrawn, and it can show a bar."""
    try:
        if not stream.isatty():
            return False
    except ValueError:  # closed
        return False
    encoding = (stream.encoding or "").lower().replace("-", "")
    return environ.get("TERM", "dumb") not in ("dumb", "unknown", "") and encoding == "utf8"


class PlainReporter:
    """Lines of text: start, progress now and then, end. In a large run quick steps are counted, not listed."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._tally: Tally | None = None
        self._large = False
        self._meters: dict[ArtifactId, Meter] = {}
        self._shown: dict[ArtifactId, float] = {}
        self._counted_at = clock()

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None:
        self._tally = Tally(plan, prefix, self._clock())
        self._large = self._tally.planned > SMALL_PLAN
        self._say(*opening_lines(plan, prefix=prefix, origin=origin, hint=hint, width=None))

    def started(self, id_: ArtifactId, *, log: str | None) -> None:
        now = self._clock()
        self._meters[id_] = Meter(str(id_), now)
        self._shown[id_] = now
        if not self._large:
            self._say(Line(f"{id_}: started" + (f", log {log}" if log else "")))

    def waiting(self, id_: ArtifactId, *, holder: str) -> None:
        self._say(Line(f"{id_}: waiting for {holder}, who builds it"))

    def progressed(self, id_: ArtifactId, progress: Progress) -> None:
        now = self._clock()
        meter = self._meters.setdefault(id_, Meter(str(id_), now))
        meter.update(progress, now)
        if now - self._shown.setdefault(id_, now) >= PLAIN_SECONDS:
            self._shown[id_] = now
            self._say(Line(meter.line(now, None)))

    def noted(self, id_: ArtifactId, note: str) -> None:
        self._say(Line(f"note: {id_}: {note}"))

    def retrying(self, id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None:
        self._meters.pop(id_, None)
        self._say(Line(retry_text(id_, failed, retry=retry, of=of, seconds=seconds), "warning"))

    def finished(self, id_: ArtifactId, outcome: Outcome, *, seconds: float, path: str) -> None:
        self._end(id_)
        if self._tally is not None:
            self._tally.finished(id_, outcome, path)
        if not self._large or seconds >= SLOW_SECONDS:
            self._say(Line(f"{id_}: {outcome.value} in {duration(seconds)}"))
        elif self._clock() - self._counted_at >= PLAIN_SECONDS:
            self._counted_at = self._clock()
            self._say(Line(self._count()))

    def failed(self, failed: FailedStep) -> None:
        self._end(failed.id)
        if self._tally is not None:
            self._tally.failures.append(failed)
        self._say(Line(f"{failed.id}: failed: {first_line(next(failure_text(failed)))}", "error"))
        if self._tally is not None:
            self._tally.told_last = failed

    def blocked(self, id_: ArtifactId, *, by: ArtifactId) -> None:
        if self._tally is not None:
            self._tally.blocked[id_] = by

    def stopping(self, signal_name: str) -> None:
        if self._tally is not None:
            self._say(self._tally.stopping_line(self._meters))

    def ended(self, *, interrupted: bool) -> None:
        if self._tally is not None:
            lines = self._tally.closing_lines(self._clock(), interrupted=interrupted, running=self._meters)
            self._say(*lines)

    def _end(self, id_: ArtifactId) -> None:
        self._meters.pop(id_, None)
        self._shown.pop(id_, None)

    def _count(self) -> str:
        done, planned = (self._tally.done, self._tally.planned) if self._tally is not None else (0, 0)
        running = [str(id_) for id_ in list(self._meters)[:3]]
        more = len(self._meters) - len(running)
        now_running = f", running {', '.join(running)}" if running else ""
        return f"{done:,} of {planned:,} steps done{now_running}{f' and {more:,} more' if more else ''}"

    def _say(self, *lines: Line) -> None:
        if self._tally is not None:
            self._tally.told_last = None
        self._stream.write(paint(lines, color=False))
        self._stream.flush()


class JsonReporter:
    """One JSON object a line: ``{"event": "finished", "step": "name@version", ...}``.

    Events: ``planned started waiting progressed noted retrying finished failed blocked stopping ended``.
    Fields may be added later.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._shown: dict[ArtifactId, float] = {}

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None:
        self._tell("planned", prefix=prefix, origin=origin, hint=hint, **plan_as_json(plan))

    def started(self, id_: ArtifactId, *, log: str | None) -> None:
        self._tell("started", step=str(id_), log=log)

    def waiting(self, id_: ArtifactId, *, holder: str) -> None:
        self._tell("waiting", step=str(id_), holder=holder)

    def progressed(self, id_: ArtifactId, progress: Progress) -> None:
        now = self._clock()
        if now - self._shown.get(id_, -JSON_SECONDS) >= JSON_SECONDS:
            self._shown[id_] = now
            self._tell("progressed", step=str(id_), **dataclasses.asdict(progress))

    def noted(self, id_: ArtifactId, note: str) -> None:
        self._tell("noted", step=str(id_), note=note)

    def retrying(self, id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None:
        self._tell("retrying", step=str(id_), error=failed.error, log=failed.log, retry=retry, of=of, seconds=seconds)

    def finished(self, id_: ArtifactId, outcome: Outcome, *, seconds: float, path: str) -> None:
        self._shown.pop(id_, None)
        self._tell("finished", step=str(id_), outcome=outcome.value, seconds=round(seconds, 3), path=shown_place(path))

    def failed(self, failed: FailedStep) -> None:
        self._shown.pop(failed.id, None)
        failure = failed.failure
        self._tell(
            "failed",
            step=str(failed.id),
            error=failure.error,
            message=failure.message,
            frame=failure.frame,
            log=failed.log,
        )

    def blocked(self, id_: ArtifactId, *, by: ArtifactId) -> None:
        self._tell("blocked", step=str(id_), by=str(by))

    def stopping(self, signal_name: str) -> None:
        self._tell("stopping", signal=signal_name)

    def ended(self, *, interrupted: bool) -> None:
        self._tell("ended", interrupted=interrupted)

    def _tell(self, event: str, **fields: Any) -> None:
        self._stream.write(json.dumps({"event": event, **fields}, default=str, ensure_ascii=True) + "\n")
        self._stream.flush()


class Guarded:
    """Passes events on to another reporter. If that fails, says so once, and the run goes on unseen."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None:
        self._pass_on(self._reporter.planned, plan, prefix=prefix, origin=origin, hint=hint)

    def started(self, id_: ArtifactId, *, log: str | None) -> None:
        self._pass_on(self._reporter.started, id_, log=log)

    def waiting(self, id_: ArtifactId, *, holder: str) -> None:
        self._pass_on(self._reporter.waiting, id_, holder=holder)

    def progressed(self, id_: ArtifactId, progress: Progress) -> None:
        self._pass_on(self._reporter.progressed, id_, progress)

    def noted(self, id_: ArtifactId, note: str) -> None:
        self._pass_on(self._reporter.noted, id_, note)

    def retrying(self, id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None:
        self._pass_on(self._reporter.retrying, id_, failed, retry=retry, of=of, seconds=seconds)

    def finished(self, id_: ArtifactId, outcome: Outcome, *, seconds: float, path: str) -> None:
        self._pass_on(self._reporter.finished, id_, outcome, seconds=seconds, path=path)

    def failed(self, failed: FailedStep) -> None:
        self._pass_on(self._reporter.failed, failed)

    def blocked(self, id_: ArtifactId, *, by: ArtifactId) -> None:
        self._pass_on(self._reporter.blocked, id_, by=by)

    def stopping(self, signal_name: str) -> None:
        self._pass_on(self._reporter.stopping, signal_name)

    def ended(self, *, interrupted: bool) -> None:
        self._pass_on(self._reporter.ended, interrupted=interrupted)

    def _pass_on(self, event: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        try:
            event(*args, **kwargs)
        except Exception as fault:  # noqa: BLE001  # whatever a terminal or a pipe does, the run is worth more
            broken, self._reporter = self._reporter, SilentReporter()
            with contextlib.suppress(Exception):
                broken.ended(interrupted=False)  # gives the terminal back
            if not isinstance(fault, BrokenPipeError):
                with contextlib.suppress(Exception):
                    sys.stderr.write(f"note: the display failed ({type(fault).__name__}: {fault}); the run goes on\n")
