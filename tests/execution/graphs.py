"""Steps, and what a store would say of them, for tests of decisions that need no store."""

from __future__ import annotations

from typing import Any

import msgspec

from marin.execution.artifact import Artifact
from marin.execution.graph import Step, lower
from marin.execution.identity import ArtifactId, parse_artifact_id
from marin.execution.lazy import ArtifactStep
from marin.execution.planning import Observation, Plan, make_plan
from marin.execution.record import Attempt, Build, Input, Record, RecordedFingerprint, State
from tests.execution.records import build

FIXED = "2026.07.01"


def step(id_: str, *deps: Step, lr: float = 0.1, **more: Any) -> Step:
    """A step of that name, or NAME@VERSION."""
    parsed = parse_artifact_id(id_ if "@" in id_ else f"{id_}@{FIXED}")
    return ArtifactStep(
        name=parsed.name,
        version=parsed.version,
        artifact_type=Artifact,
        run=more.pop("run", "project.steps:make"),
        deps=deps,
        build_config=lambda ctx: {"lr": lr},
        **more,
    )


def made(handle: Step, build_id: str = "b1", *, used: str = "b1", scheme: int = 1, **more: Any) -> Build:
    """A build of ``handle``, made from those builds of its dependencies."""
    fingerprint = handle.fingerprint()
    inputs = tuple(Input(name=dep.name, version=dep.version, build_id=used, path=dep.id.address) for dep in handle.deps)
    recorded = RecordedFingerprint(scheme=scheme, digest=fingerprint.digest, payload=fingerprint.payload)
    return msgspec.structs.replace(build(build_id, **{"fingerprint": recorded, **more}), deps=inputs)


def seen(handle: Step, build: Build | None = None, attempt: Attempt | None = None, **more: Any) -> Observation:
    """What is observed where the record has that build and that attempt."""
    state = State.BUILT
    if attempt is not None:
        state = State.FAILED if attempt.error is not None else State.BUILDING
    record = Record(name=handle.name, version=handle.version, state=state, build=build, attempt=attempt)
    return Observation(record=record, **more)


def served(*handles: Step) -> dict[ArtifactId, Observation]:
    """Each of ``handles`` is built."""
    return {handle.id: seen(handle, made(handle)) for handle in handles}


def planned(*targets: Step, only: tuple[str, ...] | None = None, observed: dict[ArtifactId, Observation]) -> Plan:
    """The plan where the store has what is observed, and nothing else."""
    graph = lower(*targets)
    everything = {id_: observed.get(id_, Observation()) for id_ in graph.steps}
    chosen = None if only is None else frozenset(id_ for id_ in graph.steps if id_.name in only)
    return make_plan(graph, everything, only=chosen)
