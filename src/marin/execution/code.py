"""The code of a step: what its function reaches by name, digested definition by definition.

The author's own functions, classes and constants count by their syntax; installed distributions by name and version;
what has no source is *unknown*, which is not *unchanged*. It is read from the source files as they are when it is
asked for; a module that was edited after its import, and not imported again, still runs as it was.

Read in this order: code_changes, code_digest, code_names, code_module, code_source, code_entry, code_handles,
code_reach.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import msgspec

from marin.execution.code_changes import CODE_SCHEME, CodeChange, RecordedCode, RecordedModule, code_changes
from marin.execution.code_entry import entries_of, unwrapped
from marin.execution.code_reach import Reach, Sources, reach_of
from marin.execution.lazy import StepFunction
from marin.execution.naming import describe


def code_of(function: StepFunction) -> RecordedCode:
    """The code of a step function as its source is now. Imports nothing, and never raises."""
    return CodeReader().code_of(function)


@dataclass(frozen=True, eq=False)
class _Reached:
    """What one function reaches. ``kept``: objects whose ids must not be given to others meanwhile."""

    code: RecordedCode
    packages: frozenset[str]
    kept: tuple[Any, ...]


class CodeReader:
    """Reads the code of many steps, every file once: make a new one for each plan.

    Steps of one function cost one reading, however many they are.
    """

    def __init__(self) -> None:
        self._sources = Sources()
        self._by_function: dict[int, tuple[StepFunction, _Reached]] = {}
        self._by_entries: dict[object, _Reached] = {}
        self._complete: dict[_Reached, RecordedCode] = {}

    def code_of(self, function: StepFunction) -> RecordedCode:
        """The code of ``function``, with the versions of the distributions that it uses. Never raises."""
        reached = self._reached(function)
        complete = self._complete.get(reached)
        if complete is None:
            complete = msgspec.structs.replace(reached.code, distributions=_versions(reached.packages))
            self._complete[reached] = complete
        return complete

    def changes(self, recorded: RecordedCode | None, function: StepFunction) -> tuple[CodeChange, ...]:
        """Which definitions differ from the recorded ones; none if nothing was recorded. Never raises."""
        return () if recorded is None else code_changes(recorded, self._reached(function).code)

    def _reached(self, function: StepFunction) -> _Reached:
        function = unwrapped(function)
        known = self._by_function.get(id(function))
        if known is None:
            known = self._by_function[id(function)] = (function, self._read(function))
        return known[1]

    def _read(self, function: StepFunction) -> _Reached:
        # Whatever is wrong with somebody's source, or object, must not keep a step from being planned.
        try:
            entries = entries_of(function)
            # Closures of one function are many objects with the same code.
            key = tuple(entry.key for entry in entries)
            known = self._by_entries.get(key)
            if known is None:
                reach = reach_of(self._sources, entries)
                known = self._by_entries[key] = _Reached(_recorded(reach), frozenset(reach.packages), entries)
        except Exception as fault:  # noqa: BLE001
            reason = {function if isinstance(function, str) else describe(function): f"{type(fault).__name__}: {fault}"}
            return _Reached(RecordedCode(scheme=CODE_SCHEME, unknown=reason), frozenset(), ())
        return known


def _recorded(reach: Reach) -> RecordedCode:
    modules = {
        name: RecordedModule(file=reach.files[name], definitions=dict(sorted(definitions.items())))
        for name, definitions in sorted(reach.definitions.items())
    }
    return RecordedCode(scheme=CODE_SCHEME, modules=modules, unknown=dict(sorted(reach.unknown.items())))


def _versions(packages: Iterable[str]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for package in packages:
        versions |= _version(package)
    return dict(sorted(versions.items()))


@functools.cache
def _version(package: str) -> dict[str, str]:
    """The version of the distribution that has ``package``; of a shared package, of each that has a part of it."""
    try:
        return {package: metadata.version(package)}
    except metadata.PackageNotFoundError:
        names = _distributions().get(package, [])
    except Exception:  # noqa: BLE001  # metadata that can't be read
        return {package: ""}
    return {name: metadata.version(name) for name in names} or {package: ""}


@functools.cache
def _distributions() -> dict[str, list[str]]:
    try:
        return {package: sorted(set(names)) for package, names in metadata.packages_distributions().items()}
    except Exception:  # noqa: BLE001
        return {}
