"""Remembers what runs tell, and shows nothing."""

from __future__ import annotations

from marin.execution.events import FailedStep, Outcome, SilentReporter
from marin.execution.identity import ArtifactId
from marin.execution.planning import Plan
from marin.execution.record import FailedTry


class RecordingReporter(SilentReporter):
    """Remembers what runs told. Steps are named ``name@version``.

    - ``plan``: of the last run. ``ends``: how many runs are over.
    - ``made``: what was built and adopted, in the order in which it was done; a ``dev`` step as often as it was built.
    - ``outcomes``: how steps ended well: ``built``, ``adopted``, or ``reused`` from another process.
    - ``failures``, ``blocks``: what failed, and what was not made because of which failed step.
    - ``retries``: the failed tries that were repeated.
    - ``notes``, ``waits``: what the author of a step should know, and for whom it waited.
    """

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.made: list[str] = []
        self.notes: list[tuple[str, str]] = []
        self.waits: list[tuple[str, str]] = []
        self.retries: list[tuple[str, FailedTry]] = []
        self.outcomes: dict[str, str] = {}
        self.failures: dict[str, FailedStep] = {}
        self.blocks: dict[str, str] = {}
        self.ends = 0

    def planned(self, plan: Plan, *, prefix: str, origin: str, hint: str | None) -> None:
        self.plan = plan

    def noted(self, id_: ArtifactId, note: str) -> None:
        self.notes.append((str(id_), note))

    def waiting(self, id_: ArtifactId, *, holder: str) -> None:
        self.waits.append((str(id_), holder))

    def retrying(self, id_: ArtifactId, failed: FailedTry, *, retry: int, of: int, seconds: float) -> None:
        self.retries.append((str(id_), failed))

    def finished(self, id_: ArtifactId, outcome: Outcome, *, seconds: float, path: str) -> None:
        self.outcomes[str(id_)] = str(outcome)
        if outcome is not Outcome.REUSED:
            self.made.append(str(id_))

    def failed(self, failed: FailedStep) -> None:
        self.failures[str(failed.id)] = failed

    def blocked(self, id_: ArtifactId, *, by: ArtifactId) -> None:
        self.blocks[str(id_)] = str(by)

    def ended(self, *, interrupted: bool) -> None:
        self.ends += 1
