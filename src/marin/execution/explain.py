"""Why one step of a plan would be built, served, left alone or refused: the facts behind its decision. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin.execution.code_changes import CodeChange, RecordedCode, distribution_changes
from marin.execution.drift import Change
from marin.execution.graph import StepGraph
from marin.execution.identity import ArtifactId
from marin.execution.notes import Note
from marin.execution.plan_text import is_noteworthy
from marin.execution.planning import Cause, Decision, Plan, PlannedStep, drift_of
from marin.execution.record import Build, RecordedFingerprint


@dataclass(frozen=True, kw_only=True)
class OtherVersion:
    """Another version of the artifact that the store has, and how the recipe of the step differs from its."""

    id: ArtifactId
    build: Build
    changes: tuple[Change, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True, kw_only=True)
class CodeSince:
    """What became of the code that a step was built with. ``is_recorded``: whether anybody can tell.

    ``changes``: of the author's own definitions. ``distributions``: installed packages whose version differs, then and
    now. ``unknown``: what has no readable source, with the reason; it may have changed.
    """

    is_recorded: bool
    changes: tuple[CodeChange, ...] = ()
    distributions: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict[str, Any])
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All that a plan knows about one step.

    - ``chain``: what leads to the decision. Of a step that is needed: who reads it, who reads that, up to what was
      asked for. Of one that is not: the same, up to what is there and makes it unneeded. Empty if it was asked for.
    - ``inputs``: its dependencies, as they are planned.
    - ``above``: every step further up, and every input, of which there is more to tell, dependencies first.
    - ``refused``: the other steps because of which the run would be refused.
    - ``code``: of a step that stays as it was built. ``None`` if no function made it.
    - ``other_version``: of a step that is not built yet, the newest other one that is.
    """

    planned: PlannedStep
    is_target: bool
    chain: tuple[PlannedStep, ...]
    inputs: tuple[PlannedStep, ...]
    above: tuple[PlannedStep, ...]
    refused: tuple[PlannedStep, ...]
    recorded: RecordedFingerprint | None
    code: CodeSince | None
    other_version: OtherVersion | None


def explain(
    plan: Plan,
    id_: ArtifactId,
    *,
    build: Build | None,
    others: Mapping[ArtifactId, Build],
    code: RecordedCode | None = None,
) -> Explanation:
    """Why ``plan`` decides so for the step ``id_``.

    ``build``: the complete build that its record has. ``others``: builds of other versions of it, the newest first.
    ``code``: that of its step function as it is now.
    """
    planned = plan.steps[id_]
    above = _ancestors(plan.graph, id_)
    return Explanation(
        planned=planned,
        is_target=id_ in plan.graph.targets,
        chain=tuple(plan.steps[reader] for reader in _chain(plan, id_)),
        inputs=tuple(plan.steps[dep] for dep in plan.graph.deps[id_]),
        above=tuple(plan.steps[up] for up in plan.steps if up in above and is_noteworthy(plan.steps[up])),
        refused=tuple(step for step in plan.of(Decision.REFUSE) if step.id != id_),
        recorded=None if build is None else build.fingerprint,
        code=None if build is None or code is None else _code_since(planned, build.code, code),
        other_version=_other_version(planned, others) if build is None else None,
    )


def _code_since(planned: PlannedStep, recorded: RecordedCode | None, now: RecordedCode) -> CodeSince | None:
    if planned.decision not in (Decision.SERVE, Decision.SKIP):
        return None
    if recorded is None:
        return CodeSince(is_recorded=False)
    return CodeSince(
        is_recorded=recorded.scheme == now.scheme,
        changes=planned.code_changes,
        distributions=distribution_changes(recorded, now),
        unknown=now.unknown,
    )


def _ancestors(graph: StepGraph, id_: ArtifactId) -> set[ArtifactId]:
    found = set[ArtifactId]()
    todo = list(graph.deps[id_])
    while todo:
        up = todo.pop()
        if up not in found:
            found.add(up)
            todo.extend(graph.deps[up])
    return found


def _chain(plan: Plan, id_: ArtifactId) -> list[ArtifactId]:
    """The shortest way along readers to what decides over ``id_``, which itself is not in it."""
    if plan.steps[id_].decision is Decision.SKIP:
        return _way(plan, id_, through=_is_skipped, to=lambda reader: not _is_skipped(reader))
    if id_ in (targets := frozenset(plan.graph.targets)):
        return []
    return _way(plan, id_, through=_needs_inputs, to=lambda reader: _needs_inputs(reader) and reader.id in targets)


def _is_skipped(step: PlannedStep) -> bool:
    return step.decision is Decision.SKIP


def _needs_inputs(step: PlannedStep) -> bool:
    return step.decision in (Decision.BUILD, Decision.ADOPT) or step.cause in (Cause.UNUSABLE, Cause.FINGERPRINT)


def _way(
    plan: Plan, start: ArtifactId, *, through: Callable[[PlannedStep], bool], to: Callable[[PlannedStep], bool]
) -> list[ArtifactId]:
    """From ``start``, which is not in it, along readers that are ``through``, to the nearest that is ``to``."""
    readers = plan.graph.dependents()
    came_from = dict[ArtifactId, ArtifactId]()
    todo = deque([start])
    while todo:
        here = todo.popleft()
        for id_ in readers[here]:
            reader = plan.steps[id_]
            if id_ in came_from:
                continue
            came_from[id_] = here
            if to(reader):
                return _way_back(came_from, start, id_)
            if through(reader):
                todo.append(id_)
    return []


def _way_back(came_from: Mapping[ArtifactId, ArtifactId], start: ArtifactId, end: ArtifactId) -> list[ArtifactId]:
    way = [end]
    while (before := came_from[way[-1]]) != start:
        way.append(before)
    return way[::-1]


def _other_version(planned: PlannedStep, others: Mapping[ArtifactId, Build]) -> OtherVersion | None:
    for id_, build in others.items():
        changes, notes = drift_of(planned.step, build)
        return OtherVersion(id=id_, build=build, changes=changes, notes=notes)
    return None
