"""From handles to a graph of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from marin.errors import (
    ConflictingRecipesError,
    CycleError,
    FingerprintError,
    MutableDependencyError,
    NestedArtifactError,
)
from marin.execution.drift import compare
from marin.execution.identity import ArtifactId
from marin.execution.lazy import ArtifactStep
from marin.execution.redaction import redacted_payload, shown_place

Step = ArtifactStep[Any]


@dataclass(frozen=True, repr=False)
class StepGraph:
    """Steps by id, every step after its dependencies; and which of them were asked for."""

    steps: dict[ArtifactId, Step]
    deps: Mapping[ArtifactId, tuple[ArtifactId, ...]]
    targets: tuple[ArtifactId, ...]

    def __repr__(self) -> str:
        return f"StepGraph({len(self.steps):,} steps for {', '.join(map(str, self.targets[:3]))})"

    def dependents(self) -> dict[ArtifactId, list[ArtifactId]]:
        """Who reads each step directly."""
        readers: dict[ArtifactId, list[ArtifactId]] = {id_: [] for id_ in self.steps}
        for id_, deps in self.deps.items():
            for dep in deps:
                readers[dep].append(id_)
        return readers


def lower(*handles: Step) -> StepGraph:
    """The graph of ``handles`` and everything they depend on. Pure; any depth.

    Raises ``CycleError`` (as a path), ``ConflictingRecipesError`` (with the difference), ``MutableDependencyError``
    and ``NestedArtifactError``.
    """
    steps: dict[ArtifactId, Step] = {}
    deps: dict[ArtifactId, tuple[ArtifactId, ...]] = {}
    twins: list[tuple[Step, Step]] = []
    first: dict[ArtifactId, Step] = {}
    open_ids: dict[ArtifactId, None] = {}  # the path from a target to where we are, in order
    for target in handles:
        check_handle(target)
        stack: list[tuple[Step, bool]] = [(target, False)]
        while stack:
            step, finished = stack.pop()
            id_ = step.id
            if finished:
                open_ids.pop(id_)
                steps[id_] = step
                continue
            known = first.setdefault(id_, step)
            if known is not step:
                twins.append((known, step))
            if id_ in open_ids:
                raise CycleError(_cycle(list(open_ids), id_))
            if id_ in steps:
                continue
            open_ids[id_] = None
            deps[id_] = tuple(dict.fromkeys(dep.id for dep in step.deps))
            stack.append((step, True))
            stack.extend((dep, False) for dep in reversed(step.deps))
    graph = StepGraph(steps, deps, tuple(dict.fromkeys(handle.id for handle in handles)))
    _check_twins(twins)
    _check_mutability(steps.values())
    _check_nesting(steps)
    return graph


def check_handle(given: object) -> None:
    """Raise ``TypeError`` unless ``given`` is a handle, with what to write instead."""
    if isinstance(given, ArtifactStep):
        return
    if isinstance(given, list | tuple | set | frozenset | dict):
        remedy = "give the handles one by one, as in run(*handles)"
    elif isinstance(given, str):
        remedy = "give the handle itself, not its name"
    else:
        remedy = "options and reporters are given by name, as in run(handle, options=...)"
    raise TypeError(f"{type(given).__name__} is no handle: {remedy}")


def _cycle(path: list[ArtifactId], again: ArtifactId) -> str:
    circle = [*path[path.index(again) :], again]
    path_text = " → ".join(map(str, circle))
    return f"these steps depend on each other in a circle: {path_text}. Break it by giving one of them a new name"


def _check_twins(twins: Iterable[tuple[Step, Step]]) -> None:
    checked = set[tuple[int, int]]()
    for one, other in twins:
        if (id(one), id(other)) in checked:
            continue
        checked.add((id(one), id(other)))
        if difference := _difference(one, other):
            raise ConflictingRecipesError(
                f"two different recipes for {one.id}, made at {one.made_at} and at {other.made_at}:\n"
                + "".join(f"  {line}\n" for line in difference)
                + "Give one of them another name or version"
            )


def _difference(one: Step, other: Step) -> list[str]:
    lines: list[str] = []
    for key in ("pin", "expected_fingerprint"):
        if getattr(one, key) != getattr(other, key):
            lines.append(shown_place(f"{key}: {getattr(one, key)} → {getattr(other, key)}"))
    if one.fingerprint().digest != other.fingerprint().digest:
        old, new = (redacted_payload(step.fingerprint().payload) for step in (one, other))
        lines += [str(change) for change in compare(old, new)] or ["a secret, which is not shown"]
    for key in sorted(one.runtime_args.keys() | other.runtime_args.keys()):
        old, new = (step.runtime_args.get(key) for step in (one, other))
        if not (old is new or _equal(old, new)):
            lines.append(f"runtime_args.{key}: {_shown(key, old)} → {_shown(key, new)}")
    return lines


def _shown(key: str, value: object) -> str:
    # What only an error needs, and imports more.
    from marin.execution.abbreviation import readable  # noqa: PLC0415

    return repr(readable(value, key))


def _equal(old: object, new: object) -> bool:
    try:
        return type(old) is type(new) and bool(old == new)
    except (TypeError, ValueError, FingerprintError):  # arrays answer == with an array
        return False


def _check_mutability(steps: Iterable[Step]) -> None:
    for step in steps:
        if step.id.is_mutable:
            continue
        for dep in step.deps:
            if dep.id.is_mutable:
                raise MutableDependencyError(
                    f"{step.id} has a fixed version but depends on {dep.id} (made at {dep.made_at}), which is rebuilt "
                    f"at every run. Give {dep.id.name} a fixed version, or build {step.id.name} under 'dev' as well"
                )


def _check_nesting(steps: Mapping[ArtifactId, Step]) -> None:
    addresses = {id_.address: id_ for id_ in steps}
    for id_ in steps:
        # Only a mutable version can look like a segment of a name.
        for cut, segment in enumerate(parts := id_.name.split("/")):
            if segment.endswith("-dev") and (outer := addresses.get("/".join(parts[: cut + 1]))):
                raise NestedArtifactError(f"{id_} would lie inside the folder of {outer}: rename one of them")
