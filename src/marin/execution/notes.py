"""What the author of a step should know besides drift. Typed for programs; ``str`` of a note is its line for people.

Pure: ``input_notes`` and ``first_stale`` compare what a build was made from with what the store has now.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from marin.execution.identity import ArtifactId
from marin.execution.record import Build


@dataclass(frozen=True, kw_only=True)
class StaleInput:
    """An input was built anew since the artifact was made from an earlier build of it.

    ``rebuilt_at`` is empty for data that was pinned. ``through``: the inputs between the two, nearest first, the last
    of which was made from the earlier build; empty for a direct input.

    >>> print(StaleInput(name="raw/a", version="dev", used_build="b1", newer_build="b2", rebuilt_at="2026-07-01T10Z"))
    stale input: raw/a@dev was rebuilt 2026-07-01T10Z
    """

    kind: ClassVar[str] = "stale input"

    name: str
    version: str
    used_build: str
    newer_build: str
    rebuilt_at: str
    through: tuple[ArtifactId, ...] = ()

    @property
    def id(self) -> ArtifactId:
        return ArtifactId(self.name, self.version)

    def __str__(self) -> str:
        now = f"was rebuilt {self.rebuilt_at}" if self.rebuilt_at else "is other data now"
        if not self.through:
            return f"stale input: {self.id} {now}"
        return f"stale input of an input: {self.id} {now}, after {self.through[-1]} was made from it"


@dataclass(frozen=True, kw_only=True)
class MissingInput:
    """An input of the artifact is not in the store any more; the artifact itself is."""

    kind: ClassVar[str] = "missing input"

    name: str
    version: str
    used_build: str

    @property
    def id(self) -> ArtifactId:
        return ArtifactId(self.name, self.version)

    def __str__(self) -> str:
        return f"its input {self.id} is no longer in the store"


@dataclass(frozen=True, kw_only=True)
class OtherScheme:
    """The record's fingerprint was taken with another scheme, so recipes can't be compared."""

    kind: ClassVar[str] = "other scheme"

    recorded: int
    now: int

    def __str__(self) -> str:
        age = "an older" if self.recorded < self.now else "a newer"
        return f"recorded with {age} scheme of fingerprints ({self.recorded}, now {self.now}): not compared"


@dataclass(frozen=True, kw_only=True)
class SecretChange:
    """The recipe differs only in what records don't keep."""

    kind: ClassVar[str] = "secret"

    def __str__(self) -> str:
        return "the recipe differs in a secret, which is not shown"


@dataclass(frozen=True, kw_only=True)
class UnusableRecord:
    """The record, or the data, of a step that is not needed can't be used: it hinders nobody now."""

    kind: ClassVar[str] = "unusable record"

    error: str
    message: str

    def __str__(self) -> str:
        return f"it can't be used: {self.message}"


Note: TypeAlias = StaleInput | MissingInput | OtherScheme | SecretChange | UnusableRecord


def note_as_json(note: Note) -> dict[str, Any]:
    """The kind, the line of text, and the fields of a note."""
    fields = {spec.name: getattr(note, spec.name) for spec in dataclasses.fields(note)}
    if isinstance(note, StaleInput):
        fields["through"] = [str(id_) for id_ in note.through]
    return {"kind": note.kind, "text": str(note), **fields}


def input_notes(build: Build, current: Mapping[ArtifactId, Build | None]) -> Iterator[StaleInput | MissingInput]:
    """What became of the inputs of ``build``.

    ``current``: the build that each artifact has now, ``None`` if it has none; of one that is not in it nobody knows.
    """
    for used in build.deps:
        id_ = ArtifactId(used.name, used.version)
        if id_ not in current:
            continue
        now = current[id_]
        if now is None:
            yield MissingInput(name=used.name, version=used.version, used_build=used.build_id)
        elif now.build_id != used.build_id:
            yield StaleInput(
                name=used.name,
                version=used.version,
                used_build=used.build_id,
                newer_build=now.build_id,
                rebuilt_at=now.finished,
            )


def first_stale(build: Build, direct: Iterable[Note], above: Mapping[ArtifactId, StaleInput]) -> StaleInput | None:
    """A stale input of ``build``: one of ``direct``, else one of an input of its inputs.

    ``above``: the first stale input of each artifact further up. Of the way to it only the last input is kept, so
    that each artifact of a long chain costs the same.
    """
    for note in direct:
        if isinstance(note, StaleInput):
            return note
    for used in build.deps:
        id_ = ArtifactId(used.name, used.version)
        if (cause := above.get(id_)) is not None:
            return replace(cause, through=cause.through or (id_,))
    return None
