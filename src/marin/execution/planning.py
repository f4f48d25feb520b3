"""What a run will do, and why. Pure: the graph and what the store says go in, one decision for each step comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from marin.errors import FingerprintMismatchError, MarinError, NotBuiltError
from marin.execution.drift import Change, compare
from marin.execution.fingerprint import Fingerprint
from marin.execution.graph import Step, StepGraph
from marin.execution.identity import ArtifactId
from marin.execution.record import Attempt, Build, Record, RecordedFingerprint, State
from marin.execution.redaction import redacted_payload
from marin.execution.remote import RemoteFunction
from marin.storage.owner import describe


class Decision(StrEnum):
    """What will happen to a step."""

    BUILD = "build"
    ADOPT = "adopt"
    SERVE = "serve"
    SKIP = "skip"
    """Nobody needs it: it lies upstream of something that is served."""
    REFUSE = "refuse"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the store says about one step. ``fault`` is why its record, or its data, can't be used.

    ``holder_is_gone``: whoever is recorded as its builder is dead for sure.
    """

    record: Record | None = None
    fault: MarinError | None = None
    pinned: Build | None = None
    holder_is_gone: bool = False


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """One step of a plan.

    ``changes``: the drift of what is served. ``notes``: more that its author should know. ``build``: what is served.
    """

    step: Step
    decision: Decision
    reason: str
    address: str
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    build: Build | None = None
    error: MarinError | None = None

    @property
    def id(self) -> ArtifactId:
        return self.step.id


@dataclass(frozen=True)
class Plan:
    """One decision for each step, dependencies first."""

    graph: StepGraph
    steps: Mapping[ArtifactId, PlannedStep]

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
    steps: dict[ArtifactId, PlannedStep] = {}
    for id_, step in graph.steps.items():
        planned = _decide(step, observed[id_], needed=id_ in needed, free=only is None or id_ in only)
        steps[id_] = _with_stale_inputs(planned, observed)
    return Plan(graph, steps)


def _needed(
    graph: StepGraph, observed: Mapping[ArtifactId, Observation], only: frozenset[ArtifactId] | None
) -> set[ArtifactId]:
    needed = set(graph.targets)
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


def _decide(step: Step, seen: Observation, *, needed: bool, free: bool) -> PlannedStep:
    build = seen.pinned if step.pin is not None else (seen.record.build if seen.record is not None else None)
    fingerprint = step.fingerprint()

    def planned(decision: Decision, reason: str, **more: object) -> PlannedStep:
        return PlannedStep(step=step, decision=decision, reason=reason, address=step.id.address, **more)  # type: ignore[arg-type]

    try:
        _check_expected(step, fingerprint, build)
    except FingerprintMismatchError as mismatch:
        return planned(Decision.REFUSE, "expected_fingerprint does not hold", error=mismatch)
    if seen.fault is not None and needed:
        return planned(Decision.REFUSE, type(seen.fault).__name__, error=seen.fault)
    if not needed:
        return planned(Decision.SKIP, _skip_reason(seen), **_drift(step, fingerprint, build))
    if _is_servable(step, seen) or (not free and build is not None):
        reason = f"pinned to {step.pin}" if step.pin is not None else _built_reason(build)
        return planned(Decision.SERVE, reason, build=build, **_drift(step, fingerprint, build))
    if not free:
        error = _missing(step)
        return planned(Decision.REFUSE, "not built, and not among the steps of --only", error=error)
    decision = Decision.ADOPT if step.source is not None else Decision.BUILD
    return planned(decision, _build_reason(step, seen))


def _missing(step: Step) -> MarinError:
    return NotBuiltError(f"{step.id} is not built, and --only leaves it out: name it too, or run without --only")


def _skip_reason(seen: Observation) -> str:
    there = seen.fault is None and seen.record is not None and seen.record.build is not None
    return f"{'not needed' if there else 'not built'}; what was made from it is there"


def _built_reason(build: Build | None) -> str:
    return f"built {build.finished}" if build is not None else "built"


def _build_reason(step: Step, seen: Observation) -> str:
    record = seen.record
    attempt = record.attempt if record is not None else None
    if record is not None and attempt is not None and record.state is State.BUILDING and not seen.holder_is_gone:
        return f"being built by {describe(attempt.lease.owner)} since {attempt.started}: will wait for it"
    if step.id.is_mutable:
        return f"{step.id.version} versions are rebuilt at every run"
    if attempt is not None:
        ended = f"failed: {attempt.error}" if attempt.error else "was killed"
        going_on = "; goes on from what it left" if _goes_on(step, attempt) else ""
        return f"the attempt of {attempt.started} {ended}{going_on}"
    if step.source is not None:
        return f"adopts {step.source.path}"
    return "not built yet"


def _goes_on(step: Step, attempt: Attempt) -> bool:
    """Whether a new attempt uses what ``attempt`` has left."""
    resumable = isinstance(step.run, RemoteFunction) and step.run.resumable
    return resumable and attempt.fingerprint_digest == step.fingerprint().digest


def _drift(step: Step, fingerprint: Fingerprint, build: Build | None) -> dict[str, tuple[object, ...]]:
    if build is None:
        return {}
    recorded = build.fingerprint
    if recorded.scheme != fingerprint.scheme:
        schemes = f"{recorded.scheme}, now {fingerprint.scheme}"
        age = "an older" if recorded.scheme < fingerprint.scheme else "a newer"
        return {"notes": (f"recorded with {age} scheme of fingerprints ({schemes}): not compared",)}
    if recorded.digest == fingerprint.digest or (step.pin is not None and not recorded.payload):
        return {}
    changes = compare(recorded.payload, redacted_payload(fingerprint.payload))
    return {"changes": changes} if changes else {"notes": ("the recipe differs in a secret, which is not shown",)}


def _check_expected(step: Step, fingerprint: Fingerprint, build: Build | None) -> None:
    expected = step.expected_fingerprint
    if expected is None:
        return
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


def _with_stale_inputs(planned: PlannedStep, observed: Mapping[ArtifactId, Observation]) -> PlannedStep:
    """Add a note for each input that was rebuilt since what is served was made from it."""
    build = planned.build
    if build is None:
        return planned
    notes = list(planned.notes)
    for used in build.deps:
        seen = observed.get(ArtifactId(used.name, used.version))
        if seen is None:
            continue
        if seen.record is None or seen.record.build is None:
            notes.append(f"its input {used.name}@{used.version} is no longer in the store")
        elif seen.record.build.build_id != used.build_id:
            notes.append(f"stale input: {used.name}@{used.version} was rebuilt {seen.record.build.finished}")
    if len(notes) == len(planned.notes):
        return planned
    return replace(planned, notes=tuple(notes))
