"""What is in a store, told from its records alone: no script, no handles, no types."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from marin.errors import (
    ConfigurationError,
    InvalidNameError,
    InvalidVersionError,
    NotBuiltError,
    RecordError,
    StoreError,
)
from marin.execution.identity import (
    ArtifactId,
    checked_name,
    checked_version,
    is_mutable,
    is_version,
    parse_artifact_id,
    version_order,
)
from marin.execution.record import (
    RECORD_NAME,
    Attempt,
    Build,
    Record,
    State,
    data_path,
    decode_record,
    log_path,
    record_path,
)
from marin.storage.owner import is_dead_here
from marin.storage.store import BuildStore


class Condition(StrEnum):
    """How an artifact is, as people say it: the record's state, and whether its builder still lives."""

    BUILT = "built"
    BUILDING = "building"
    REBUILDING = "rebuilding"
    """Being built anew; the previous build is served meanwhile."""
    INTERRUPTED = "interrupted"
    """Its builder has died; the next run takes over."""
    FAILED = "failed"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One artifact of the store. ``fault`` is why its record can't be read; ``raw`` is that record as it lies there."""

    id: ArtifactId
    raw: bytes
    record: Record | None = None
    fault: RecordError | None = None

    @property
    def condition(self) -> Condition:
        record = self.record
        if record is None:
            return Condition.UNREADABLE
        if record.attempt is None or record.state is State.BUILT:
            return Condition.BUILT
        if record.state is State.FAILED:
            return Condition.FAILED
        if is_dead_here(record.attempt.lease.owner):
            # A fixed version is never built twice: then it was a removal that died, and all is still there.
            return Condition.INTERRUPTED if record.build is None or self.id.is_mutable else Condition.BUILT
        return Condition.BUILDING if record.build is None else Condition.REBUILDING

    @property
    def build(self) -> Build | None:
        return None if self.record is None else self.record.build

    @property
    def attempt(self) -> Attempt | None:
        return None if self.record is None else self.record.attempt

    @property
    def log(self) -> str | None:
        """The log of the attempt if there is one, else of the build; relative to the prefix."""
        if self.attempt is not None:
            # While it is being written, only the attempt's own name says where.
            return self.attempt.log or log_path(self.id.address, self.attempt.build_id)
        return None if self.build is None else self.build.log


def entries(store: BuildStore, closed: Callable[[StoreError], None] | None = None) -> Iterator[Entry]:
    """Every artifact of the store, by name and version. Folders whose name begins with a dot are Marin's own.

    ``closed`` is told of each folder and record that we may not read; left out, the first of them is raised.
    """
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            names = store.list(folder)
            entry = _entry(store, folder) if RECORD_NAME in names else None
        except StoreError as fault:
            if closed is None:
                raise
            closed(fault)
            continue
        if RECORD_NAME in names:
            if entry is not None:
                yield entry
            continue  # nothing that is an artifact lies inside another one
        inner = [name.rstrip("/") for name in names if name.endswith("/") and not name.startswith(".")]
        folders += [f"{folder}/{name}" if folder else name for name in reversed(inner)]


def read_entry(store: BuildStore, id_: ArtifactId) -> Entry | None:
    """The artifact of that id. ``None``: there is no record of it."""
    raw = store.read(record_path(id_.address))
    if raw is None:
        return None
    place = store.url(record_path(id_.address))
    try:
        record = decode_record(raw, place, of=id_)
    except RecordError as fault:
        return Entry(id=id_, raw=raw, fault=fault)
    return Entry(id=id_, raw=raw, record=record)


def find(store: BuildStore, text: str) -> Entry:
    """The artifact that ``NAME@VERSION`` (or ``NAME/VERSION``) names.

    ``NAME`` alone means its newest fixed version, else ``dev``, else another mutable one. Raises ``NotBuiltError``
    that says what there is instead.
    """
    name, version = parse_reference(text)
    if version is not None:
        entry = read_entry(store, ArtifactId(name, version))
        if entry is None:
            raise NotBuiltError(not_there(store, name, version))
        return entry
    found = [entry for known in versions(store, name) if (entry := read_entry(store, ArtifactId(name, known)))]
    if not found:
        raise NotBuiltError(not_there(store, name, None))
    return found[0]


def parse_reference(text: str) -> tuple[str, str | None]:
    """Name and version of ``NAME@VERSION`` or ``NAME/VERSION``; of ``NAME`` alone the version is ``None``.

    >>> parse_reference("raw/poems@dev"), parse_reference("raw/poems/2026.07.01"), parse_reference("raw/poems")
    (('raw/poems', 'dev'), ('raw/poems', '2026.07.01'), ('raw/poems', None))
    """
    if "@" in text:
        id_ = parse_artifact_id(text)
        return id_.name, id_.version
    text = text.strip("/")
    name, slash, version = text.rpartition("/")
    if slash and is_version(version, name):
        return checked_name(name), version
    return checked_name(text), None


def named_step(ids: Iterable[ArtifactId], text: str, *, where: str) -> ArtifactId:
    """The one of ``ids``, the steps of the script ``where``, that NAME[@VERSION] means, as ``find`` would choose.

    Raises ``ConfigurationError`` that says what it describes instead.

    >>> named_step([ArtifactId("raw", "dev"), ArtifactId("raw", "2026.07.01")], "raw", where="pipeline.py").version
    '2026.07.01'
    """
    name, version = parse_reference(text)
    described = list(ids)
    of_name = newest_first(id_.version for id_ in described if id_.name == name)
    if of_name and version in (None, *of_name):
        return ArtifactId(name, version or of_name[0])
    if of_name:
        raise ConfigurationError(f"{where} describes {name}@{of_name[0]}, not {text}")
    near = near_names(name, {id_.name: None for id_ in described})
    hint = f"Did you mean {' or '.join(near)}?" if near else f"'marin plan {where}' shows what it describes"
    raise ConfigurationError(f"{where} describes no step {text}. {hint}")


def versions(store: BuildStore, name: str) -> list[str]:
    """The versions of ``name`` that have a record: fixed ones from new to old, then ``dev``, then other such ones."""
    known = [version.rstrip("/") for version in store.list(name) if version.endswith("/")]
    known = [version for version in known if is_version(version, name) and store.read(record_path(f"{name}/{version}"))]
    return newest_first(known)


def newest_first(known: Iterable[str]) -> list[str]:
    """Fixed versions from new to old, then ``dev``, then other mutable ones.

    >>> newest_first(["anna-dev", "dev", "2026.07.01.9", "2026.07.01.10"])
    ['2026.07.01.10', '2026.07.01.9', 'dev', 'anna-dev']
    """
    known = list(known)
    fixed = sorted((version for version in known if not is_mutable(version)), key=version_order, reverse=True)
    return fixed + sorted(
        (version for version in known if is_mutable(version)), key=lambda version: (version != "dev", version)
    )


def dependents(store: BuildStore, id_: ArtifactId) -> list[ArtifactId]:
    """The artifacts that were made, or are being made, from ``id_``."""
    found: list[ArtifactId] = []
    for entry in entries(store):
        used = [*(entry.build.deps if entry.build else ()), *(entry.attempt.inputs if entry.attempt else ())]
        if any((dep.name, dep.version) == (id_.name, id_.version) for dep in used):
            found.append(entry.id)
    return found


def data_url(store: BuildStore, entry: Entry) -> str:
    """Where the data of the complete build lies. Raises ``NotBuiltError``, or what is wrong with the record."""
    if entry.fault is not None:
        raise entry.fault
    if entry.build is None:
        raise NotBuiltError(f"{entry.id} has no complete build: it is {entry.condition.value}")
    place = data_path(entry.id.address, entry.build)
    return place if entry.build.source is not None else store.url(place)


def _entry(store: BuildStore, folder: str) -> Entry | None:
    name, _, version = folder.rpartition("/")
    try:
        id_ = ArtifactId(checked_name(name), checked_version(version, name))
    except (InvalidNameError, InvalidVersionError):
        return None  # somebody's copy in a folder of their own: not at any address
    return read_entry(store, id_)


def not_there(store: BuildStore, name: str, version: str | None) -> str:
    """That it is not in the store, and what is."""
    wanted = name if version is None else f"{name}@{version}"
    place = store.url("")
    if version is not None and (there := versions(store, name)):
        return f"{wanted} is not in {place}. There is {', '.join(f'{name}@{known}' for known in there[:5])}"
    known = list(dict.fromkeys(entry.id.name for entry in entries(store, closed=lambda fault: None)))
    if not known:
        return f"{wanted} is not in {place}: nothing has been built there. Is it the right --prefix?"
    if near := near_names(name, known):
        return f"{wanted} is not in {place}. Did you mean {' or '.join(near)}?"
    return f"{wanted} is not in {place}. 'marin ls' shows what is there"


def near_names(name: str, known: Collection[str]) -> list[str]:
    """Those of ``known`` that ``name`` may be meant for, at most three."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    near += [other for other in known if other not in near and name in other.split("/")]
    return near[:3]
