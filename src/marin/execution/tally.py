"""What a reporter remembers of a run, and what is said at its end."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from marin.execution.events import FailedStep, Outcome
from marin.execution.failure import first_line, shortened
from marin.execution.identity import ArtifactId
from marin.execution.meter import duration
from marin.execution.plan_text import Line, summary
from marin.execution.planning import Decision, Plan
from marin.execution.record import FailedTry, data_path
from marin.execution.redaction import shown_place
from marin.execution.remote_function import RemoteFunction

_LISTED_TARGETS = 10
_LISTED_FAILURES = 30
_MESSAGE_LINES = 12
_RETRY_CHARACTERS = 300


@dataclass(slots=True)
class Tally:
    """A run as it was planned, and what has become of it. ``began``: seconds of the reporter's clock."""

    plan: Plan
    prefix: str
    began: float
    outcomes: dict[Outcome, int] = field(default_factory=dict[Outcome, int])
    paths: dict[ArtifactId, str] = field(default_factory=dict[ArtifactId, str])
    failures: list[FailedStep] = field(default_factory=list[FailedStep])
    blocked: dict[ArtifactId, ArtifactId] = field(default_factory=dict[ArtifactId, ArtifactId])
    planned: int = 0
    stops: int = 0
    told_last: FailedStep | None = None
    """The failure that was the last thing said, so that it need not be said again."""

    def __post_init__(self) -> None:
        self.planned = len(self.plan.to_make)

    @property
    def done(self) -> int:
        """Steps that ended, well or not."""
        return sum(self.outcomes.values()) + len(self.failures)

    def finished(self, id_: ArtifactId, outcome: Outcome, path: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.paths[id_] = path

    def stopping_line(self, running: Collection[ArtifactId]) -> Line:
        """What is said at a signal. Only a process can save its work, or be killed."""
        self.stops += 1
        if self.stops > 1:
            return Line("killing what still runs", "warning")
        remote = any(isinstance(self.plan.steps[id_].step.run, RemoteFunction) for id_ in running)
        return Line("stopping: steps save their work (again to kill them)" if remote else "stopping", "warning")

    def closing_lines(self, now: float, *, interrupted: bool, running: Collection[ArtifactId] = ()) -> list[Line]:
        """How the run ended, and where each target lies. ``running``: what an interruption has ended."""
        if self.plan.errors or (self.planned and not self.done and not interrupted):
            return []  # refused before anything ran: the error says all
        lines = [*self._failure_lines(), *self._blocked_lines()]
        counts = [f"{count:,} {outcome.value}" for outcome, count in self.outcomes.items()]
        if self.failures:
            counts.append(f"{len(self.failures):,} failed")
        if self.blocked:
            counts.append(f"{len(self.blocked):,} blocked")
        if served := len(self.plan.of(Decision.SERVE)):
            counts.append(f"{served:,} cached")
        if interrupted:
            open_steps = self.planned - self.done - len(self.blocked)
            lines.append(Line(f"interrupted: {', '.join([*counts, f'{open_steps:,} not built'])}", "warning"))
            if self.stops == 1 and any(self._goes_on(id_) for id_ in running):
                lines.append(Line("run again to go on from where they were", "warning"))
        elif self.planned:
            lines.append(
                Line(f"{', '.join(counts)} in {duration(now - self.began)}", "error" if self.failures else "strong")
            )
        return [*lines, *self._target_lines()]

    def _goes_on(self, id_: ArtifactId) -> bool:
        """Whether the next run finds what the step has saved: a mutable version always starts anew."""
        run = self.plan.steps[id_].step.run
        return isinstance(run, RemoteFunction) and bool(run.resumable) and not id_.is_mutable

    def _target_lines(self) -> Iterator[Line]:
        targets = [(id_, place) for id_ in self.plan.graph.targets if (place := self._place(id_)) is not None]
        listed = targets[:_LISTED_TARGETS]
        width = max((len(str(id_)) for id_, _ in listed), default=0)
        for id_, place in listed:
            yield Line(f"  {id_!s:<{width}}  {shown_place(place)}")
        if (more := len(targets) - _LISTED_TARGETS) > 0:
            yield Line(f"  … and {more:,} more below {self.prefix}", "dim")

    def _place(self, id_: ArtifactId) -> str | None:
        if id_ in self.paths:
            return self.paths[id_]
        planned = self.plan.steps[id_]
        if planned.build is None or planned.decision is not Decision.SERVE:
            return None
        if planned.step.pin is not None:
            return planned.step.pin
        return absolute(self.prefix, data_path(planned.address, planned.build))

    def _failure_lines(self) -> Iterator[Line]:
        if not self.failures:
            return
        count = len(self.failures)
        if count == 1 and self.told_last is self.failures[0]:
            yield from (Line(f"    {text}") for text in list(failure_text(self.failures[0]))[1:])
            return
        yield Line("1 step failed:" if count == 1 else f"{count:,} steps failed:", "error")
        for failed in self.failures[:_LISTED_FAILURES]:
            yield Line(f"  {failed.id}", "error")
            yield from (Line(f"    {text}") for text in failure_text(failed))
        if (more := count - _LISTED_FAILURES) > 0:
            yield Line(f"  … and {more:,} more: 'marin ls' shows which", "error")

    def _blocked_lines(self) -> Iterator[Line]:
        if not self.blocked:
            return
        yield Line("blocked, because a step that they need failed:", "warning")
        for id_, cause in list(self.blocked.items())[:_LISTED_FAILURES]:
            yield Line(f"  {id_} (needs {cause})", "warning")
        if (more := len(self.blocked) - _LISTED_FAILURES) > 0:
            yield Line(f"  … and {more:,} more", "warning")


def nothing_to_do(plan: Plan) -> str | None:
    """The sentence for a run that has nothing to make, else ``None``."""
    return None if plan.to_make or plan.errors else summary(plan)


def failure_text(failed: FailedStep) -> Iterator[str]:
    """Error, first frame in the user's code, log: a line for each."""
    failure = failed.failure
    message = failure.message.strip().splitlines() or [""]
    yield f"{failure.error}: {message[0]}" if message[0] else failure.error
    yield from (f"  {text}" for text in message[1:_MESSAGE_LINES])
    if len(message) > _MESSAGE_LINES:
        yield f"  … {len(message) - _MESSAGE_LINES} more lines in the log"
    if failure.frame:
        yield f"at {failure.frame}"
    if failed.log:
        yield f"log {failed.log}"


def retry_text(id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> str:
    """What is said when a step will be tried again: one line, however long its error is."""
    first = (first_line(failed.error) or "it failed").rstrip(".")
    return f"{id_}: {shortened(first, _RETRY_CHARACTERS)}; retry {retry} of {of} in {duration(seconds)}"


def absolute(prefix: str, path: str) -> str:
    """``path`` as it stands in a record, below ``prefix`` unless it is a URL or absolute by itself.

    >>> absolute("/store", "raw/poems/dev"), absolute("/store", "s3://b/poems"), absolute("/store", "/data/poems")
    ('/store/raw/poems/dev', 's3://b/poems', '/data/poems')
    """
    return path if path.startswith("/") or "://" in path else f"{prefix.rstrip('/')}/{path}"
