"""The record of an artifact: its only control file, ``{address}/.artifact.json``, and the only truth about it.

Format (JSON, schema 1): ``build`` is the latest complete build, whatever happens after it; ``attempt`` is the one
that is under way or failed. ``state`` says how to read the two:

- ``building``: ``attempt`` holds the lease. With a ``build`` beside it, that one is still served meanwhile.
- ``failed``: ``attempt`` says why, and where its log is.
- ``built``: ``build`` is the artifact, and there is no ``attempt``.

Paths are relative to the prefix, so a store can be moved. The data of a build is complete if and only if a record
names it as ``build``.
"""

from __future__ import annotations

import datetime
import functools
import os
from enum import StrEnum
from typing import Any

import msgspec

from marin.errors import CorruptRecordError, NewerRecordError
from marin.execution.code_changes import RecordedCode
from marin.execution.identity import ArtifactId
from marin.execution.manifest import ManifestSummary
from marin.storage.owner import Owner
from marin.storage.store import BUILD_PREFIX, LOGS_FOLDER, RECORD_NAME

SCHEMA = 1
"""Raised when a record can't be read by an older Marin any more."""

PINNED_BUILD = "pinned"
"""The build id of bare data that a pin names."""


# gc=False below: nothing in a record leads back to it, and a plan of thousands of steps is not searched for cycles.


class State(StrEnum):
    """What the record of an artifact says of it. See the module's text."""

    SUBMITTED = "submitted"
    BUILDING = "building"
    FAILED = "failed"
    BUILT = "built"


class RecordedFingerprint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The recipe that a build was made from: scheme number, sha256, and the typed JSON that was hashed."""

    scheme: int
    digest: str
    payload: dict[str, Any]


class Input(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A dependency as it was when it was read: which build of it, and where (relative to the prefix, or a URL)."""

    name: str
    version: str
    build_id: str
    path: str


class Build(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A complete build.

    ``data``: the folder that counts, relative to the address (``.``: the address itself), or the path or URL of
    adopted data. ``result``: the fields of the artifact. ``config``: the config with placeholders, for people;
    ``seconds``: from the lease to the publication. ``code``: what the step function was; ``None``: not recorded.
    ``earlier``: tries of the same run that failed before it.
    """

    build_id: str
    data: str
    fingerprint: RecordedFingerprint
    artifact_type: str
    result: dict[str, Any]
    config: Any = None
    runtime_args: dict[str, Any] = {}
    deps: tuple[Input, ...] = ()
    source: str | None = None
    manifest: ManifestSummary | None = None
    log: str | None = None
    started: str
    finished: str
    seconds: float
    provenance: dict[str, Any] = {}
    code: RecordedCode | None = None
    earlier: tuple[FailedTry, ...] = ()


class Lease(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who holds the artifact. ``beat`` grows with every renewal; who waits measures silence on its own clock."""

    owner: Owner
    nonce: str
    term: int
    ttl_seconds: float
    beat: int = 0


class StopRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Somebody wants an attempt to end. Written into its record by them, not by its builder."""

    by: str
    at: str


class FailedTry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An earlier try of the same run at the same step, which was repeated."""

    build_id: str
    started: str
    error: str
    frame: str | None = None
    log: str | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A build under way, or one that failed: then ``error`` is the first line of why, ``frame`` where.

    ``number`` counts the tries of one run, ``earlier`` has the last that failed before; ``stop``: it is to end.
    ``takes_over``: the attempt whose unfinished work this one goes on from, in short.
    """

    build_id: str
    fingerprint_digest: str
    fingerprint_scheme: int
    started: str
    lease: Lease
    inputs: tuple[Input, ...] = ()
    log: str | None = None
    error: str | None = None
    frame: str | None = None
    number: int = 1
    earlier: tuple[FailedTry, ...] = ()
    stop: StopRequest | None = None
    takes_over: Attempt | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known about one artifact. See the module's text."""

    schema: int = SCHEMA
    name: str
    version: str
    state: State
    build: Build | None = None
    attempt: Attempt | None = None

    @property
    def id(self) -> ArtifactId:
        return ArtifactId(self.name, self.version)


class _Head(msgspec.Struct):
    schema: int


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Record)
_HEAD = msgspec.json.Decoder(_Head)


def encode_record(record: Record) -> bytes:
    """The bytes of the record file: JSON that a person can read, one line a level."""
    return msgspec.json.format(_ENCODER.encode(record), indent=1) + b"\n"


def decode_record(data: bytes, place: str, *, of: ArtifactId | None = None) -> Record:
    """Reads a record file.

    Raises ``NewerRecordError`` for one that only a newer Marin can read, and ``CorruptRecordError`` for one that is
    torn, not ours or, where ``of`` says whose it should be, another artifact's; ``place`` is named in both.
    """
    try:
        record = _DECODER.decode(data)
    except msgspec.DecodeError as fault:
        _check_schema(_schema(data, place), place)
        raise CorruptRecordError(f"{place} is not a complete record: {fault}") from fault
    _check_schema(record.schema, place)
    if of is not None and record.id != of:
        raise CorruptRecordError(f"{place} is the record of {record.id}: it was copied or moved here by hand")
    if record.state is State.BUILT and record.build is None:
        raise CorruptRecordError(f"{place} says 'built' without a build")
    if record.state is not State.BUILT and record.attempt is None:
        raise CorruptRecordError(f"{place} says {record.state.value!r} without an attempt")
    return record


def _schema(data: bytes, place: str) -> int:
    try:
        return _HEAD.decode(data).schema
    except msgspec.DecodeError as fault:
        raise CorruptRecordError(f"{place} is not a record of an artifact: {fault}") from fault


def _check_schema(schema: int, place: str) -> None:
    if schema > SCHEMA:
        raise NewerRecordError(
            f"{place} has record schema {schema}, and this Marin reads up to {SCHEMA}: "
            "install the newer Marin that wrote it"
        )


def record_path(address: str) -> str:
    """Where the record of the artifact at ``address`` lies, relative to the prefix."""
    return f"{address}/{RECORD_NAME}"


def build_folder(address: str, build_id: str) -> str:
    """The folder of one attempt, relative to the prefix."""
    return f"{address}/{BUILD_PREFIX}{build_id}"


def log_path(address: str, build_id: str) -> str:
    """The log of one attempt, relative to the prefix."""
    return f"{address}/{LOGS_FOLDER}/{build_id}.log"


def data_path(address: str, build: Build) -> str:
    """Where the data of ``build`` lies: relative to the prefix, or the path or URL of adopted data."""
    if build.source is not None:
        return build.source
    return address if build.data == "." else f"{address}/{build.data}"


def new_build_id(now: datetime.datetime, random: str = "") -> str:
    """A name for one attempt: sorts by time, and is never used twice. ``random``: 8 hex digits that are."""
    return f"{timestamp(now).translate(_COMPACT)}-{random or os.urandom(4).hex()}"


def timestamp(now: datetime.datetime) -> str:
    """UTC, to the second, as it stands in records."""
    return _written(now.astimezone(datetime.UTC).replace(microsecond=0, tzinfo=None))


_COMPACT = str.maketrans("", "", "-:Z")


@functools.lru_cache(maxsize=2)  # in a run of short steps many fall into one second
def _written(now: datetime.datetime) -> str:
    return now.isoformat() + "Z"
