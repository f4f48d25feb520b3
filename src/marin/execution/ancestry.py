"""What an artifact was made from, and what became of that since: told from records alone, any depth.

Pure but for what ``ancestry`` is given to read with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from marin.errors import MarinError
from marin.execution.identity import ArtifactId
from marin.execution.notes import MissingInput, StaleInput
from marin.execution.record import PINNED_BUILD, Build, Input


class Fate(StrEnum):
    """What became of a build that was read."""

    SAME = "same build"
    REBUILT = "rebuilt"
    MISSING = "missing"
    ELSEWHERE = "elsewhere"
    """It was read from a place outside of the store: there is no record to ask."""
    UNREADABLE = "unreadable"
    """Its record can't be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Ancestor:
    """One input, direct or not: which build of it was used, and which there is now.

    ``reader``: the ancestor that was made from it, ``None`` for a direct input.
    """

    used: Input
    fate: Fate
    now: Build | MarinError | None
    reader: Ancestor | None = field(repr=False)  # a chain may be deep

    @property
    def id(self) -> ArtifactId:
        return ArtifactId(self.used.name, self.used.version)

    @property
    def through(self) -> tuple[ArtifactId, ...]:
        """The inputs between the artifact and this one, nearest first."""
        path: list[ArtifactId] = []
        reader = self.reader
        while reader is not None:
            path.append(reader.id)
            reader = reader.reader
        return tuple(reversed(path))

    @property
    def note(self) -> StaleInput | MissingInput | None:
        """What a reader should know of it, if anything."""
        used = self.used
        if self.fate is Fate.MISSING:
            return MissingInput(name=used.name, version=used.version, used_build=used.build_id)
        if not isinstance(self.now, Build) or self.fate is not Fate.REBUILT:
            return None
        return StaleInput(
            name=used.name,
            version=used.version,
            used_build=used.build_id,
            newer_build=self.now.build_id,
            rebuilt_at=self.now.finished,
            through=self.through,
        )


def ancestry(inputs: tuple[Input, ...], read: Callable[[ArtifactId], Build | MarinError | None]) -> list[Ancestor]:
    """Every input and input of an input, nearest first; each build that was used is there once.

    Behind one that was rebuilt nothing is followed: its record tells of the newer build. ``read`` gives the build that
    an artifact has now, or why that can't be told, and is asked once for each artifact.
    """
    current: dict[ArtifactId, Build | MarinError | None] = {}
    seen = set[tuple[ArtifactId, str]]()
    found: list[Ancestor] = []
    todo = deque[tuple[Input, Ancestor | None]]((used, None) for used in inputs)
    while todo:
        used, reader = todo.popleft()
        id_ = ArtifactId(used.name, used.version)
        if (id_, used.build_id) in seen:
            continue
        seen.add((id_, used.build_id))
        if id_ not in current:
            current[id_] = read(id_)
        now = current[id_]
        ancestor = Ancestor(used, _fate(used, now), now, reader)
        found.append(ancestor)
        if isinstance(now, Build) and ancestor.fate is Fate.SAME:
            todo.extend((further, ancestor) for further in now.deps)
    return found


def _fate(used: Input, now: Build | MarinError | None) -> Fate:
    if isinstance(now, MarinError):
        return Fate.UNREADABLE
    if now is None or used.build_id == PINNED_BUILD:
        # Paths of artifacts of the store are relative to the prefix.
        return Fate.ELSEWHERE if used.path.startswith("/") or "://" in used.path else Fate.MISSING
    return Fate.SAME if now.build_id == used.build_id else Fate.REBUILT
