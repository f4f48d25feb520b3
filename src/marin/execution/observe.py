"""What the store says about the steps of a graph: one read for each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from marin.errors import (
    ArtifactTypeError,
    CorruptRecordError,
    MarinError,
    NotBuiltError,
    RecordError,
    SourceMissingError,
    StoreError,
)
from marin.execution import result_types
from marin.execution.artifact import Artifact
from marin.execution.code import CodeReader
from marin.execution.graph import Step, StepGraph
from marin.execution.held_record import is_given_up
from marin.execution.identity import ArtifactId
from marin.execution.manifest import first_missing
from marin.execution.naming import class_name
from marin.execution.planning import Observation
from marin.execution.record import (
    PINNED_BUILD,
    Build,
    Record,
    RecordedFingerprint,
    data_path,
    decode_record,
    record_path,
)
from marin.execution.redaction import redacted_payload, shown_place
from marin.execution.results import decode_result, encode_result
from marin.storage.owner import is_dead_here
from marin.storage.store import BuildStore


def observe(store: BuildStore, graph: StepGraph) -> dict[ArtifactId, Observation]:
    """Reads the record of each step, looks whether the data that it names is there, and compares its code.

    Writes nothing.
    """
    code = CodeReader()
    return {id_: _with_code(observe_step(store, step), step, code) for id_, step in graph.steps.items()}


def _with_code(seen: Observation, step: Step, code: CodeReader) -> Observation:
    if seen.build is None or seen.build.code is None or step.run is None:
        return seen
    changes = code.changes(seen.build.code, step.run)
    return dataclasses.replace(seen, code_changes=changes) if changes else seen


def observe_step(store: BuildStore, step: Step) -> Observation:
    """What the store says about one step. A torn record counts as none: the next build takes it over."""
    record: Record | None = None
    try:
        if step.pin is not None:
            return Observation(pinned=pinned_build(step, step.pin))
        record = read_record(store, step.id)
        if record is None and step.source is not None:
            check_source(step.id, source_path(step.source.path))
        if record is not None and record.build is not None:
            check_data(store, record, record.build)
            if not step.id.is_mutable:  # a dev version of another type is built anew
                typed_artifact(step, record.build)
    except CorruptRecordError as torn:
        # Nothing is built over what a pin names.
        return Observation(torn=torn) if step.pin is None else Observation(fault=torn)
    except (MarinError, OSError) as fault:
        error = fault if isinstance(fault, MarinError) else StoreError(f"{step.id}: {fault}")
        return Observation(record=record, fault=error)
    attempt = record.attempt if record is not None else None
    gone = attempt is not None and (is_given_up(attempt.lease) or is_dead_here(attempt.lease.owner))
    return Observation(record=record, holder_is_gone=gone)


def read_record(store: BuildStore, id_: ArtifactId) -> Record | None:
    """The record of ``id_``. None: there is none. Raises ``RecordError``."""
    path = record_path(id_.address)
    raw = store.read(path)
    if raw is None:
        return None
    try:
        return decode_record(raw, path, of=id_)
    except RecordError:
        return decode_record(raw, store.url(path), of=id_)  # says where in full, which takes a moment


def build_url(store: BuildStore, record: Record, build: Build) -> str:
    """Where the data of ``build`` lies: an absolute path, or the URL of adopted data."""
    place = data_path(record.id.address, build)
    return place if build.source is not None else store.url(place)


def check_data(store: BuildStore, record: Record, build: Build) -> None:
    """Raise unless the data of a complete build is where its record says."""
    place = build_url(store, record, build)
    if build.source is not None:
        check_source(record.id, place)
    elif (missing := first_missing(place, build.manifest)) is not None:
        raise StoreError(
            f"{record.id}: the record says that it was built {build.finished}, but its data is not in {place}"
            f"{f' (there is no {missing})' if missing else ''}. "
            f"Put the data back, or remove the record with 'marin rm {record.id}' and run again"
        )


def source_path(source: str) -> str:
    """Where an adopted source lies: a URL, or an absolute path."""
    return source if "://" in source else os.path.abspath(os.path.expanduser(source))


def check_source(id_: ArtifactId, source: str) -> None:
    """Raise ``SourceMissingError`` unless adopted or pinned data is there."""
    if "://" in source:
        source = shown_place(source)
        raise SourceMissingError(f"{id_}: {source} is a URL, and only data on local disks can be read: copy it to one")
    if not os.path.exists(source):
        raise SourceMissingError(
            f"{id_}: {shown_place(source)} does not exist. Put the data back, or name the place where it is now"
        )


def pinned_build(step: Step, pin: str) -> Build:
    """The build that a pinned step reads: the one of the record at ``pin`` if there is one, else the bare data."""
    path = os.path.abspath(os.path.expanduser(pin)) if "://" not in pin else pin
    check_source(step.id, path)
    foreign = foreign_build(path)
    if foreign is not None:
        build = foreign[1]
        typed_artifact(step, build, f"record at {shown_place(path)}")
        inner = build.source or (path if build.data == "." else f"{path}/{build.data}")
        return msgspec.structs.replace(build, source=inner, data=inner)
    return described_build(step, path, {}, build_id=PINNED_BUILD)


def foreign_build(path: str) -> tuple[Record, Build] | None:
    """The record of an artifact that lies at ``path``, and its complete build. None: no record there."""
    place = f"{path}/.artifact.json"
    try:
        with open(place, "rb") as file:
            raw = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    record = decode_record(raw, shown_place(place))
    if record.build is None:
        raise NotBuiltError(f"{shown_place(place)}: that artifact is {record.state.value}, it has no complete build")
    return record, record.build


def described_build(step: Step, path: str, config: Mapping[str, Any], *, build_id: str, now: str = "") -> Build:
    """A build that says of bare data at ``path`` what its type can read from it and what ``config`` adds."""
    artifact = step.artifact_type.from_source(path, config)
    return Build(
        build_id=build_id,
        data=path,
        source=path,
        fingerprint=recorded_fingerprint(step) if step.pin is None else _no_fingerprint(step),
        artifact_type=class_name(step.artifact_type),
        result=encode_result(artifact),
        started=now,
        finished=now,
        seconds=0.0,
    )


def recorded_fingerprint(step: Step, secrets: Sequence[str] | None = None) -> RecordedFingerprint:
    """The fingerprint as it is kept: the hash of the whole recipe, and its JSON without secrets."""
    fingerprint = step.fingerprint()
    return RecordedFingerprint(
        scheme=fingerprint.scheme, digest=fingerprint.digest, payload=redacted_payload(fingerprint.payload, secrets)
    )


def _no_fingerprint(step: Step) -> RecordedFingerprint:
    """Of bare data nobody knows the recipe: nothing to compare with."""
    fingerprint = step.fingerprint()
    return RecordedFingerprint(scheme=fingerprint.scheme, digest=fingerprint.digest, payload={})


def typed_artifact(step: Step, build: Build, what: str = "") -> Artifact:
    """The artifact of ``build`` in the type that the handle asks for, without its path. ``what``: of whom errors speak.

    Raises ``ArtifactTypeError`` if the result does not fit, also if the handle's type would leave out some of it.
    ``Artifact`` itself takes any.
    """
    asked = step.artifact_type
    if asked is Artifact:
        return Artifact()
    what = f"{what or f'record of {step.id}'} (a {build.artifact_type})"
    if left_out := ", ".join(sorted(build.result.keys() - {spec.name for spec in dataclasses.fields(asked)})):
        if build.artifact_type != class_name(asked):
            raise ArtifactTypeError(
                f"the {what} does not fit {asked.__name__}, which has no {left_out}: "
                "ask for the type that it is, or give the new type a new version"
            )
        raise ArtifactTypeError(
            f"the {what} has {left_out}, which {asked.__name__} has no longer: "
            f"give {step.id.name} a new version, so that it is built anew, or keep the field"
        )
    try:
        artifact = decode_result(asked, build.result, what=what)
    except ArtifactTypeError as fault:
        raise ArtifactTypeError(
            f"{fault}. Give {step.id.name} a new version, so that it is built anew, "
            "or let the class take what was recorded, such as by a default for a new field"
        ) from fault
    if (lost := result_types.left_out(artifact, build.result)) is not None:
        raise ArtifactTypeError(
            f"the {what} has {lost[0].lstrip('.')}, which {lost[1]} has no longer: "
            f"give {step.id.name} a new version, so that it is built anew, or keep the field"
        )
    return artifact
