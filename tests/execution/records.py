"""Records as a run would write them, for tests that have no run."""

from __future__ import annotations

from typing import Any

from marin.execution.identity import ArtifactId, parse_artifact_id
from marin.execution.record import (
    Attempt,
    Build,
    Input,
    Lease,
    ManifestSummary,
    Record,
    RecordedFingerprint,
    State,
    encode_record,
    record_path,
)
from marin.storage.local import LocalStore
from marin.storage.owner import Owner, this_process

STRANGER = Owner(host="node7", user="anna", pid=4, started=1, machine_id="m", boot_id="b", pid_namespace="p")
"""A process on another machine: nobody can tell from here whether it lives."""


def build(build_id: str = "b1", *, deps: tuple[str, ...] = (), **more: Any) -> Build:
    given: dict[str, Any] = {
        "data": ".",
        "fingerprint": RecordedFingerprint(scheme=1, digest="abcdef0123456789" * 4, payload={"config": {}}),
        "artifact_type": "project:Poems",
        "result": {"lines": 7},
        "config": {"language": "fr"},
        "deps": tuple(used(dep) for dep in deps),
        "manifest": ManifestSummary(files=2, bytes=1_500_000, digest="0" * 64),
        "started": "2026-07-01T10:00:00Z",
        "finished": "2026-07-01T10:01:15Z",
        "seconds": 75.0,
    }
    return Build(build_id=build_id, **{**given, **more})


def used(id_: str) -> Input:
    name, version = id_.split("@")
    return Input(name=name, version=version, build_id="b1", path=f"{name}/{version}")


def attempt(build_id: str = "a1", *, owner: Owner | None = None, **more: Any) -> Attempt:
    lease = Lease(owner=owner or this_process(), nonce="n", term=1, ttl_seconds=90.0)
    given = {"fingerprint_digest": "0" * 64, "fingerprint_scheme": 1, "started": "2026-07-02T10:00:00Z", "lease": lease}
    return Attempt(build_id=build_id, **{**given, **more})


def put(store: LocalStore, id_: str, build: Build | None = None, attempt: Attempt | None = None) -> ArtifactId:
    """Writes a record: built, building, or failed if the attempt has an error. Beside it a file of data."""
    parsed = parse_artifact_id(id_)
    state = State.BUILT
    if attempt is not None:
        state = State.FAILED if attempt.error is not None else State.BUILDING
    record = Record(name=parsed.name, version=parsed.version, state=state, build=build, attempt=attempt)
    store.write(record_path(parsed.address), encode_record(record))
    store.write(f"{parsed.address}/poems.txt", b"il pleure dans mon coeur")
    return parsed
