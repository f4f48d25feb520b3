"""Where handles get the version that their author left open."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from marin.errors import UnusedOverrideError
from marin.execution.ambient import Ambient
from marin.execution.identity import checked_name, checked_version

AMBIENT_VERSION: Final = "<ambient>"
"""Stands for "the version is left to the build context"; compared by value, and no valid version."""


@dataclass(frozen=True, kw_only=True)
class VersionCodex:
    """Which version a handle gets whose author left it open: an override by name, else ``default``."""

    default: str = "dev"
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        checked_version(self.default, "handles that leave theirs open")
        for name, version in self.overrides.items():
            checked_version(version, checked_name(name))


@dataclass(slots=True)
class _Build:
    codex: VersionCodex
    outer: _Build | None
    open_names: set[str] = field(default_factory=set[str])
    written: dict[str, str] = field(default_factory=dict[str, str])
    default_used: bool = False


_BUILD = Ambient[_Build]("build_context")


@contextlib.contextmanager
def build_context(codex: VersionCodex, *, note: Callable[[str], None] | None = None) -> Generator[VersionCodex]:
    """Handles that are made inside, and leave their version open, get it from ``codex``.

    Raises ``UnusedOverrideError`` at the end for an override that no handle used. In a context inside another one the
    inner codex counts, and a handle counts as made in both. ``note`` is told at the end if handles were made, and each
    had its version from elsewhere, so that the default had no effect.

    >>> with build_context(VersionCodex(default="2026.07.01", overrides={"tokens": "anna-dev"})):
    ...     ambient_version("tokens"), ambient_version("model")
    ('anna-dev', '2026.07.01')
    """
    build = _Build(codex, outer=_BUILD.get())
    with _BUILD.use(build):
        yield codex
    _check_overrides(build)
    if note is not None and not build.default_used and (build.written or build.open_names):
        written = next((f": the script gives {name} the version {there}" for name, there in build.written.items()), "")
        note(f"version {codex.default} has no effect{written}. Leave version= out there to choose it from outside")


def ambient_version(name: str) -> str:
    """The version for a handle called ``name`` whose author left it open: ``dev`` outside a build context."""
    build = _BUILD.get()
    if build is None:
        return "dev"
    version = build.codex.overrides.get(name, build.codex.default)
    for context in _enclosing(build):
        context.open_names.add(name)
        if name not in build.codex.overrides and version == context.codex.default:
            context.default_used = True
    return version


def note_written_version(name: str, version: str) -> None:
    """Remember a handle with a version of its own, so that an override of it can be explained."""
    for context in _enclosing(_BUILD.get()):
        context.written[name] = version


def _enclosing(build: _Build | None) -> Iterator[_Build]:
    while build is not None:
        yield build
        build = build.outer


def _check_overrides(build: _Build) -> None:
    for name, version in build.codex.overrides.items():
        # A handle that a context around us has already given this version has used the override as well.
        if any(
            name in context.open_names and context.codex.overrides.get(name) == version for context in _enclosing(build)
        ):
            continue
        if name in build.written:
            raise UnusedOverrideError(
                f"override {name}={version} has no effect: the script gives {name} the version "
                f"{build.written[name]}. Leave version= out there to choose it from outside"
            )
        near = difflib.get_close_matches(name, sorted(build.open_names | build.written.keys()), n=1, cutoff=0.5)
        known = ", ".join(sorted(build.open_names)) or "none"
        hint = f"did you mean {near[0]}? " if near else ""
        raise UnusedOverrideError(
            f"override {name}={version} matches no handle: {hint}handles with an open version are: {known}"
        )
