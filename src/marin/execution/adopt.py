"""Data that was made elsewhere becomes an artifact: nothing is copied, its record says where it came from."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from marin.execution.artifact import Artifact, at_path
from marin.execution.graph import Step
from marin.execution.naming import class_name
from marin.execution.observe import (
    check_source,
    described_build,
    foreign_build,
    recorded_fingerprint,
    source_path,
    typed_artifact,
)
from marin.execution.record import Build, timestamp
from marin.execution.redaction import shown_place
from marin.execution.results import encode_result
from marin.execution.run_state import RunState


def adopted_build(run: RunState, step: Step, build_id: str) -> Build:
    """The build that points to ``step.source``. Raises ``SourceMissingError`` or ``ArtifactTypeError``."""
    assert step.source is not None
    source = step.source
    path = source_path(source.path)
    check_source(step.id, path)
    now = timestamp(datetime.datetime.now(datetime.UTC))
    provenance = dict(run.provenance())
    foreign = foreign_build(path)
    if foreign is None:
        build = described_build(step, path, source.config, build_id=build_id, now=now)
        at_path(typed_artifact(step, build), path).check_adopted()
        return msgspec.structs.replace(build, provenance=provenance)
    record, made = foreign
    inner = made.source or (path if made.data == "." else f"{path}/{made.data}")
    result = _result(step, made, inner)
    artifact = typed_artifact(step, msgspec.structs.replace(made, result=result), f"record at {shown_place(path)}")
    at_path(artifact, inner).check_adopted()
    provenance["adopted_from"] = {
        "artifact": str(record.id),
        "build_id": made.build_id,
        "finished": made.finished,
        "fingerprint": f"{made.fingerprint.scheme}:{made.fingerprint.digest}",
        "provenance": made.provenance,
    }
    return Build(
        build_id=build_id,
        data=inner,
        source=inner,
        fingerprint=recorded_fingerprint(step),
        artifact_type=class_name(step.artifact_type),
        result=result,
        manifest=made.manifest,
        started=now,
        finished=now,
        seconds=0.0,
        provenance=provenance,
    )


def _result(step: Step, made: Build, place: str) -> dict[str, Any]:
    """The result of an artifact with a record of its own: as recorded, unless ``config`` says something about it.

    A type that reads its own data decides what ``config`` means, as it does of data without a record; of another type
    the entries of ``config`` are fields.
    """
    assert step.source is not None
    config = step.source.config
    if not config:
        return made.result
    if step.artifact_type.from_source.__func__ is Artifact.from_source.__func__:
        return {**made.result, **config}
    typed_artifact(step, made, f"record at {shown_place(place)}")  # of another type it says so, and not what is amiss
    return encode_result(step.artifact_type.from_source(place, config))
