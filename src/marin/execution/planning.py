"""What a run will do, and why. Pure: the graph and what the store says go in, one decision for each step comes out.

A little over 300 lines, so that every decision and its cause are found in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from marin.errors import FingerprintMismatchError, MarinError, NotBuiltError
from marin.execution.code_changes import CodeChange
from marin.execution.drift import Change, compare
from marin.execution.failure import first_line
from marin.execution.graph import Step, StepGraph
from marin.execution.identity import ArtifactId
from marin.execution.notes import (
    Note,
    OtherScheme,
    SecretChange,
    StaleInput,
    UnusableRecord,
    first_stale,
    input_notes,
)
from marin.execution.record import Attempt, Build, Record, RecordedFingerprint, State
from marin.execution.redaction import redacted_payload, shown_place
from marin.execution.remote_function import RemoteFunction
from marin.storage.owner import describe


class Decision(StrEnum):
    """What will happen to a step."""

    BUILD = "build"
    ADOPT = "adopt"
    SERVE = "serve"
    SKIP = "skip"
    """Nobody needs it: it lies upstream of something that is served."""
    REFUSE = "refuse"


class Cause(StrEnum):
    """Why it was decided so. The reason of a planned step says the same to people, with names and times."""

    # build and adopt
    NOT_BUILT = "not built"
    MUTABLE = "mutable version"
    UNDER_WAY = "being built"
    FAILED = "failed before"
    KILLED = "killed before"
    TORN = "torn record"
    NOT_ADOPTED = "not adopted"
    # serve
    BUILT = "built"
    PINNED = "pinned"
    TAKEN = "taken as it is"
    """A mutable version that ``--only`` leaves out."""
    # skip
    NOT_NEEDED = "not needed"
    ABSENT = "not built, not needed"
    # refuse
    FINGERPRINT = "unexpected fingerprint"
    UNUSABLE = "unusable record or data"
    LEFT_OUT = "left out"
    """Missing, and ``--only`` leaves it out."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the store says about one step. ``fault`` is why its record, or its data, can't be used.

    ``torn``: its record is no record, and the next build replaces it. ``holder_is_gone``: whoever is recorded as its
    builder is dead for sure. ``code_changes``: in the code of the step since it was built.
    """

    record: Record | None = None
    fault: MarinError | None = None
    torn: MarinError | None = None
    pinned: Build | None = None
    holder_is_gone: bool = False
    code_changes: tuple[CodeChange, ...] = ()

    @property
    def build(self) -> Build | None:
        """The complete build that there is."""
        if self.pinned is not None:
            return self.pinned
        return None if self.record is None else self.record.build


@dataclass(frozen=True, kw_only=True, repr=False)
class PlannedStep:
    """One step of a plan.

    ``changes``: the drift of what is served; ``code_changes``: what differs in the code that it was built with.
    ``notes``: more that its author should know. ``build``: what is served.
    """

    step: Step
    decision: Decision
    cause: Cause
    reason: str
    address: str
    changes: tuple[Change, ...] = ()
    code_changes: tuple[CodeChange, ...] = ()
    notes: tuple[Note, ...] = ()
    build: Build | None = None
    error: MarinError | None = None

    def __repr__(self) -> str:
        return f"PlannedStep({self.decision.value} {self.id}: {self.reason})"

    @property
    def id(self) -> ArtifactId:
        return self.step.id


@dataclass(frozen=True, repr=False)
class Plan:
    """One decision for each step, dependencies first."""

    graph: StepGraph
    steps: Mapping[ArtifactId, PlannedStep]

    def __repr__(self) -> str:
        # Here and below: what only people at a screen need, and which needs this module.
        from marin.execution.plan_text import overview  # noqa: PLC0415

        return f"Plan({overview(self)})"

    def _repr_html_(self) -> str | None:
        from marin.execution.html import plan_html  # noqa: PLC0415

        return plan_html(self)

    def of(self, decision: Decision) -> list[PlannedStep]:
        return [planned for planned in self.steps.values() if planned.decision is decision]

    @property
    def to_make(self) -> list[PlannedStep]:
        """What is built or adopted, in order."""
        return [planned for planned in self.steps.values() if planned.decision in (Decision.BUILD, Decision.ADOPT)]

    @property
    def errors(self) -> list[MarinError]:
        return [planned.error for planned in self.steps.values() if planned.error is not None]


def make_plan(
    graph: StepGraph,
    observed: Mapping[ArtifactId, Observation],
    *,
    only: frozenset[ArtifactId] | None = None,
) -> Plan:
    """Decide for each step of ``graph``. With ``only``, every other step is taken as it is, ``dev`` included."""
    needed = _needed(graph, observed, only)
    current = {id_: observed[id_].build for id_ in graph.steps}
    stale: dict[ArtifactId, StaleInput] = {}
    steps: dict[ArtifactId, PlannedStep] = {}
    for id_, step in graph.steps.items():
        seen, build = observed[id_], current[id_]
        ruling = _decide(step, seen, needed=id_ in needed, free=only is None or id_ in only)
        changes, notes = _told(step, seen, ruling.decision, current, stale)
        steps[id_] = PlannedStep(
            step=step,
            decision=ruling.decision,
            cause=ruling.cause,
            reason=ruling.reason,
            address=id_.address,
            changes=changes,
            code_changes=seen.code_changes if ruling.decision in (Decision.SERVE, Decision.SKIP) else (),
            notes=notes,
            build=build if ruling.decision is Decision.SERVE else None,
            error=ruling.error,
        )
    return Plan(graph, steps)


def _needed(
    graph: StepGraph, observed: Mapping[ArtifactId, Observation], only: frozenset[ArtifactId] | None
) -> set[ArtifactId]:
    needed = set(graph.targets)
    if only is not None:  # a target that is left out is handed out if it is there, and else nobody asks for it
        needed = {id_ for id_ in graph.targets if observed[id_].build is not None}.union(only)
    for id_ in reversed(graph.steps):
        free = only is None or id_ in only
        if id_ in needed and free and not _is_servable(graph.steps[id_], observed[id_]):
            needed.update(graph.deps[id_])
    return needed


def _is_servable(step: Step, seen: Observation) -> bool:
    if step.pin is not None:
        return True
    complete = seen.record is not None and seen.record.build is not None and seen.fault is None
    return complete and not step.id.is_mutable


class _Ruling(NamedTuple):
    decision: Decision
    cause: Cause
    reason: str
    error: MarinError | None = None


def _decide(step: Step, seen: Observation, *, needed: bool, free: bool) -> _Ruling:
    try:
        step.fingerprint()  # a recipe that can't be encoded is told here, whatever there is
        check_expected(step, seen.build)
    except FingerprintMismatchError as mismatch:
        return _Ruling(Decision.REFUSE, Cause.FINGERPRINT, "expected_fingerprint does not hold", mismatch)
    build = seen.build
    # What is made anew at every run needs nothing of the build before: its data may be gone, only its record counts.
    is_made_anew = step.id.is_mutable and step.pin is None and free and seen.record is not None
    if seen.fault is not None and needed and not is_made_anew:
        return _Ruling(Decision.REFUSE, Cause.UNUSABLE, type(seen.fault).__name__, seen.fault)
    if not needed:
        there = seen.fault is None and build is not None
        cause, reason = (Cause.NOT_NEEDED, "not needed") if there else (Cause.ABSENT, "not built, not needed")
        return _Ruling(Decision.SKIP, cause, f"{reason}: nothing that is built now reads it")
    if step.pin is not None:
        return _Ruling(Decision.SERVE, Cause.PINNED, f"pinned to {shown_place(step.pin)}")
    if build is not None and not step.id.is_mutable:
        return _Ruling(Decision.SERVE, Cause.BUILT, f"built {build.finished}")
    if not free:
        if build is not None:
            return _Ruling(Decision.SERVE, Cause.TAKEN, f"built {build.finished}; --only takes it as it is")
        error = NotBuiltError(f"{step.id} is not built, and --only leaves it out: name it too, or run without --only")
        return _Ruling(Decision.REFUSE, Cause.LEFT_OUT, "not built, and not among the steps of --only", error)
    return _Ruling(Decision.ADOPT if step.source is not None else Decision.BUILD, *_why_made(step, seen))


def _why_made(step: Step, seen: Observation) -> tuple[Cause, str]:
    record = seen.record
    attempt = record.attempt if record is not None else None
    if record is not None and attempt is not None and record.state is State.BUILDING and not seen.holder_is_gone:
        holder = describe(attempt.lease.owner)
        return Cause.UNDER_WAY, f"being built by {holder} since {attempt.started}: will wait for it"
    if step.id.is_mutable:
        return Cause.MUTABLE, f"{step.id.version} versions are rebuilt at every run"
    if attempt is not None:
        if attempt.error:
            cause, ended = Cause.FAILED, f"failed: {first_line(attempt.error)}"
        else:
            cause, ended = Cause.KILLED, "was killed"
        return cause, f"the attempt of {attempt.started} {ended}{_going_on(step, attempt)}"
    if seen.torn is not None:
        return Cause.TORN, "its record is torn: built anew, and what lies there is kept aside"
    if step.source is not None:
        return Cause.NOT_ADOPTED, f"adopts {shown_place(step.source.path)}"
    return Cause.NOT_BUILT, "not built yet"


def _going_on(step: Step, attempt: Attempt) -> str:
    """What a new attempt does with the work that ``attempt`` has left."""
    if not isinstance(step.run, RemoteFunction) or not step.run.resumable:
        return ""
    if attempt.fingerprint_digest == step.fingerprint().digest:
        return "; goes on from what it left"
    if step.run.resumable == "any_recipe":
        return "; the recipe is another one now: goes on from what it left, or refuses if that does not fit"
    return "; the recipe is another one now: begins anew, without what it left"


def _told(
    step: Step,
    seen: Observation,
    decision: Decision,
    current: Mapping[ArtifactId, Build | None],
    stale: dict[ArtifactId, StaleInput],
) -> tuple[tuple[Change, ...], tuple[Note, ...]]:
    """The drift and the notes of what stays as it is. ``stale`` grows: the first stale input of each step."""
    if decision not in (Decision.SERVE, Decision.SKIP):
        return (), ()
    changes, notes = (), ()
    if (build := seen.build) is not None:
        changes, notes = drift_of(step, build)
        # What is pinned lies elsewhere, perhaps in another store: its inputs are no matter of this one.
        if build.deps and step.pin is None:
            inputs = tuple(input_notes(build, current))
            notes += inputs
            if (inputs or stale) and (cause := first_stale(build, inputs, stale)) is not None:
                stale[step.id] = cause
                # Of what is skipped only its own inputs are told: the rest is told where it happened.
                notes += (cause,) if decision is Decision.SERVE and cause not in inputs else ()
    fault = seen.fault or seen.torn
    if decision is Decision.SKIP and fault is not None:
        notes += (UnusableRecord(error=type(fault).__name__, message=str(fault)),)
    return changes, notes


def drift_of(step: Step, build: Build) -> tuple[tuple[Change, ...], tuple[Note, ...]]:
    """How the recipe of ``step`` differs from the one that ``build`` was made from; or why that can't be told."""
    fingerprint, recorded = step.fingerprint(), build.fingerprint
    if recorded.scheme != fingerprint.scheme:
        return (), (OtherScheme(recorded=recorded.scheme, now=fingerprint.scheme),)
    if recorded.digest == fingerprint.digest or (step.pin is not None and not recorded.payload):
        return (), ()
    # The recorded one as well: an earlier Marin left in it some of what is hidden now.
    changes = compare(*map(redacted_payload, (recorded.payload, fingerprint.payload)))
    return changes, () if changes else (SecretChange(),)


def check_expected(step: Step, build: Build | None) -> None:
    """Raise ``FingerprintMismatchError`` unless recipe and ``build`` are those that ``expected_fingerprint`` names."""
    expected = step.expected_fingerprint
    if expected is None:
        return
    fingerprint = step.fingerprint()
    now = f"{fingerprint.scheme}:{fingerprint.digest}"
    scheme, _, digest = expected.partition(":")
    if int(scheme) != fingerprint.scheme:
        raise FingerprintMismatchError(
            f"{step.id}: expected_fingerprint={expected!r} has scheme {scheme}; renew it: {now[: len(expected)]!r}"
        )
    if not fingerprint.digest.startswith(digest):
        raise FingerprintMismatchError(
            f"{step.id}: the recipe has fingerprint {now[: len(expected)]}, expected was {expected}. "
            "Undo the change of the recipe, or give it a new version and the new fingerprint"
        )
    if build is not None and not _matches(build.fingerprint, scheme, digest):
        recorded = f"{build.fingerprint.scheme}:{build.fingerprint.digest}"[: len(expected)]
        raise FingerprintMismatchError(
            f"{step.id}: the artifact in the store was built from another recipe ({recorded}), expected was {expected}"
        )


def _matches(recorded: RecordedFingerprint, scheme: str, digest: str) -> bool:
    return recorded.scheme == int(scheme) and recorded.digest.startswith(digest)
