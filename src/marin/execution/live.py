"""A run on a terminal: a line for each step that runs, redrawn in place; finished steps leave one behind.

Imports rich, so only ``console.default_reporter`` imports it, when there is a terminal.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from marin.execution.events import FailedStep, Outcome
from marin.execution.failure import first_line
from marin.execution.identity import ArtifactId
from marin.execution.meter import SLOW_SECONDS, Meter, duration, shortened
from marin.execution.plan_text import SMALL_PLAN, Line, Tone, opening_lines
from marin.execution.planning import Plan
from marin.execution.progress import Progress
from marin.execution.record import FailedTry
from marin.execution.tally import Tally, failure_text, retry_text

_REDRAWS_A_SECOND = 8
_STYLES: dict[Tone, str] = {
    "plain": "",
    "dim": "dim",
    "good": "green",
    "warning": "yellow",
    "error": "red",
    "strong": "bold",
}


class LiveReporter:
    """Redraws what runs."""

    def __init__(self, stream: TextIO, *, color: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        # emoji and markup off: a name like [bold] or :smile: in an error is text.
        # Rich's own way without colors keeps bold and dim; without a color system there are no such codes at all.
        system = "auto" if color else None
        self._console = Console(file=stream, color_system=system, markup=False, emoji=False, highlight=False)
        self._clock = clock
        self._tally: Tally | None = None
        self._large = False
        self._meters: dict[ArtifactId, Meter] = {}
        self._lock = threading.Lock()  # rich redraws in a thread of its own
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=_REDRAWS_A_SECOND,
            transient=True,
            # A program that reads our stdout must find there what the script printed, so only a terminal is shared.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
        )

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None:
        self._tally = Tally(plan, prefix, self._clock())
        self._large = self._tally.planned > SMALL_PLAN
        self._say(*opening_lines(plan, prefix=prefix, origin=origin, hint=hint, width=self._console.width))

    def started(self, id_: ArtifactId, *, log: str | None) -> None:
        self._go_live()
        with self._lock:
            self._meters[id_] = Meter(str(id_), self._clock())

    def waiting(self, id_: ArtifactId, *, holder: str) -> None:
        self._go_live()
        with self._lock:
            meter = self._meters.setdefault(id_, Meter(str(id_), self._clock()))
            meter.status = f"waiting for {holder}"

    def progressed(self, id_: ArtifactId, progress: Progress) -> None:
        now = self._clock()
        with self._lock:
            self._meters.setdefault(id_, Meter(str(id_), now)).update(progress, now)

    def noted(self, id_: ArtifactId, note: str) -> None:
        self._say(Line(f"note: {id_}: {note}", "warning"))

    def retrying(self, id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None:
        with self._lock:
            meter = self._meters[id_] = Meter(str(id_), self._clock())
            meter.status = f"retry {retry} of {of} comes"
        self._say(Line(retry_text(id_, failed, retry=retry, of=of, seconds=seconds), "warning"))

    def finished(self, id_: ArtifactId, outcome: Outcome, *, seconds: float, path: str) -> None:
        self._end(id_)
        with self._lock:
            if self._tally is not None:
                self._tally.finished(id_, outcome, path)
        if not self._large or seconds >= SLOW_SECONDS:
            self._say(Line(f"✓ {id_} {outcome.value} in {duration(seconds)}", "good"))

    def failed(self, failed: FailedStep) -> None:
        self._end(failed.id)
        if self._tally is not None:
            self._tally.failures.append(failed)
        self._say(Line(f"✗ {failed.id} failed: {first_line(next(failure_text(failed)))}", "error"))
        if self._tally is not None:
            self._tally.told_last = failed

    def blocked(self, id_: ArtifactId, *, by: ArtifactId) -> None:
        if self._tally is not None:
            self._tally.blocked[id_] = by

    def stopping(self, signal_name: str) -> None:
        if self._tally is not None:
            self._say(self._tally.stopping_line(self._running()))

    def ended(self, *, interrupted: bool) -> None:
        self._live.stop()
        atexit.unregister(self._live.stop)
        if self._tally is not None:
            running = self._running()
            self._say(*self._tally.closing_lines(self._clock(), interrupted=interrupted, running=running))

    def _go_live(self) -> None:
        # Not before something runs: a run that is refused is over without a word to us.
        if not self._live.is_started:
            self._live.start()
            atexit.register(self._live.stop)  # whatever happens, the cursor comes back

    def _end(self, id_: ArtifactId) -> None:
        with self._lock:
            self._meters.pop(id_, None)

    def _running(self) -> list[ArtifactId]:
        with self._lock:
            return [id_ for id_, meter in self._meters.items() if not meter.status]  # the others only wait

    def _say(self, *lines: Line) -> None:
        if self._tally is not None:
            self._tally.told_last = None
        for line in lines:
            # The terminal wraps, so that a path that is copied has no line break in it.
            self._console.print(Text(line.text, style=_STYLES[line.tone]), soft_wrap=True)

    def _draw(self) -> Text:
        now, width = self._clock(), self._console.width
        with self._lock:
            meters = list(self._meters.values())
            room = max(1, self._console.height - 3)
            lines = [meter.line(now, width) for meter in meters[:room]]
            done = self._tally.done if self._tally is not None else 0
        if (more := len(meters) - room) > 0:
            lines.append(f"… and {more:,} more running")
        if self._tally is not None and self._tally.planned > 1:
            planned = self._tally.planned
            lines.append(shortened(f"{done:,} of {planned:,} steps, {duration(now - self._tally.began)}", width))
        return Text("\n".join(lines), no_wrap=True, overflow="crop")
