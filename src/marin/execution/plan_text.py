"""A plan as people read it, and as JSON. Pure: a plan goes in, lines come out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from marin.errors import MarinError
from marin.execution.code_changes import CodeChange
from marin.execution.drift import Change
from marin.execution.failure import first_line
from marin.execution.identity import ArtifactId
from marin.execution.notes import SecretChange, note_as_json
from marin.execution.planning import Decision, Plan, PlannedStep
from marin.execution.redaction import redact_text

Tone = Literal["plain", "dim", "good", "warning", "error", "strong"]

SMALL_PLAN = 25
"""Up to so many steps a run lists one by one at its start; of more it says how many."""

LISTED_WARNINGS = 20
"""Of so many steps changes and notes are told in full, at the start of a run and in a large plan."""

LISTED_CHANGES = 12
"""So many changed keys of one step are listed; ``marin why`` lists all."""

LISTED_DEFINITIONS = 8
"""So many changed definitions of one step are named in its line; the rest are counted."""

REMEDY = "bump the version to build the new recipe"

LABELS = {
    Decision.BUILD: "build",
    Decision.ADOPT: "adopt",
    Decision.SERVE: "cached",
    Decision.SKIP: "skip",
    Decision.REFUSE: "refuse",
}
_TONES: dict[Decision, Tone] = {
    Decision.BUILD: "good",
    Decision.ADOPT: "good",
    Decision.SERVE: "plain",
    Decision.SKIP: "dim",
    Decision.REFUSE: "error",
}
_SUMMARY = {
    Decision.BUILD: "to build",
    Decision.ADOPT: "to adopt",
    Decision.SERVE: "cached",
    Decision.SKIP: "not needed",
    Decision.REFUSE: "refused",
}
_ANSI: dict[Tone, str] = {"dim": "2", "good": "32", "warning": "33", "error": "31", "strong": "1"}
_NARROWEST_REASON = 24
_LONGEST_REASON = 100
"""Of a reason at the start of a run; ``marin plan`` tells all of it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text, and what it is to the reader."""

    text: str
    tone: Tone = "plain"


def paint(lines: Sequence[Line], *, color: bool) -> str:
    """The lines as one text, with ANSI colors if asked for.

    >>> paint([Line("built", "good")], color=True)
    '\\x1b[32mbuilt\\x1b[0m\\n'
    """
    return "".join(f"{_colored(line) if color else line.text}\n" for line in lines)


def _colored(line: Line) -> str:
    code = _ANSI.get(line.tone)
    return line.text if code is None else f"\x1b[{code}m{line.text}\x1b[0m"


def render_plan(plan: Plan, *, width: int | None = None, color: bool = False) -> str:
    """One line for each step (what will happen, the address below the prefix, the reason), then a summary.

    Changes and notes stand beneath their step; in a large plan only those of the first ``LISTED_WARNINGS`` such steps.
    ``width``: columns of the terminal; what does not fit goes to a line of its own. ``None``: as wide as it takes.
    """
    steps = list(plan.steps.values())
    told = [step.id for step in steps if is_noteworthy(step)]
    if len(steps) > SMALL_PLAN:
        told = told[:LISTED_WARNINGS]
    lines = [*_step_lines(steps, width, told=frozenset(told)), Line(summary(plan), "strong")]
    return paint(lines, color=color)


def is_noteworthy(step: PlannedStep) -> bool:
    """Whether there is more to tell of a step than its decision and reason."""
    return bool(step.changes or step.code_changes or step.notes)


def summary(plan: Plan) -> str:
    """How many steps there are, and what will happen to them."""
    counts = {decision: len(plan.of(decision)) for decision in Decision}
    total = len(plan.steps)
    if total and counts[Decision.SERVE] + counts[Decision.SKIP] == total:
        return f"{_all(total)} cached{' or not needed' if counts[Decision.SKIP] else ''}: nothing to build"
    parts = [f"{count:,} {_SUMMARY[decision]}" for decision, count in counts.items() if count]
    return f"{_steps(total)}: {', '.join(parts) or 'nothing to do'}"


def overview(plan: Plan) -> str:
    """The summary, and of how many steps the recipe, or the code, is another than what was built."""
    steps = plan.steps.values()
    drifted = sum(1 for step in steps if step.changes or any(isinstance(note, SecretChange) for note in step.notes))
    recoded = sum(1 for step in steps if step.code_changes)
    told = ((drifted, "with drift"), (recoded, "with changed code"))
    return "; ".join([summary(plan), *(f"{count:,} {what}" for count, what in told if count)])


def opening_lines(plan: Plan, *, prefix: str, origin: str, hint: str | None, width: int | None) -> list[Line]:
    """What is said when a run begins: the store, what will be made, and what its author should know."""
    lines = [Line(f"store: {prefix} ({origin})", "dim")]
    if hint:
        lines.append(Line(f"note: {hint}", "warning"))
    shown = [step for step in plan.steps.values() if step.decision is not Decision.SKIP]
    if (plan.to_make or plan.errors) and len(shown) <= SMALL_PLAN:
        lines += _step_lines(shown, width, brief=True)
    lines.append(Line(summary(plan), "strong"))
    lines += _warning_lines(plan)
    return lines


def plan_as_json(plan: Plan, unable: Iterable[MarinError] = ()) -> dict[str, Any]:
    """The plan as JSON values: ``steps``, dependencies first, and ``summary``, the number of steps by decision.

    ``refused``: why a run would not begin, of the plan and what this machine is ``unable`` to do; empty if it would.
    """
    return {
        "targets": [str(id_) for id_ in plan.graph.targets],
        "summary": {decision.value: len(plan.of(decision)) for decision in Decision},
        "steps": [step_as_json(step) for step in plan.steps.values()],
        "refused": [redact_text(str(error)) for error in (*plan.errors, *unable)],
    }


def change_as_json(change: Change) -> dict[str, Any]:
    """A changed key: where, what kind of change, the typed values, and the line for people."""
    return {
        "path": change.path,
        "kind": change.kind.value,
        "old": change.old,
        "new": change.new,
        "text": str(change),
    }


def step_as_json(planned: PlannedStep) -> dict[str, Any]:
    """One step of a plan."""
    return {
        "step": str(planned.id),
        "name": planned.id.name,
        "version": planned.id.version,
        "decision": planned.decision.value,
        "cause": planned.cause.value,
        "reason": planned.reason,
        "address": planned.address,
        "changes": [change_as_json(change) for change in planned.changes],
        "code_changes": [code_change_as_json(change) for change in planned.code_changes],
        "notes": [note_as_json(note) for note in planned.notes],
        "error": None if planned.error is None else error_as_json(planned.error),
    }


def error_as_json(error: MarinError) -> dict[str, str]:
    """The class and the message of an error."""
    return {"type": type(error).__name__, "message": str(error)}


def _step_lines(
    steps: Sequence[PlannedStep],
    width: int | None,
    *,
    told: Collection[ArtifactId] = (),
    brief: bool = False,
) -> Iterator[Line]:
    """A line for each step, beneath those of ``told`` their changes and notes. ``brief``: nothing but that line."""
    label_width = max((len(LABELS[step.decision]) for step in steps), default=0)
    address_width = max((len(step.address) for step in steps), default=0)
    for step in steps:
        head = f"  {LABELS[step.decision]:<{label_width}}  "
        reason = first_line(step.reason)
        if brief and len(reason) > _LONGEST_REASON:
            reason = f"{reason[:_LONGEST_REASON]}…"
        if not brief and step.id not in told and is_noteworthy(step):
            reason = f"{reason}; {_counted(step)}: 'marin why {step.id} SCRIPT'"
        tone = _TONES[step.decision]
        if width is None or len(head) + address_width + 2 + max(_NARROWEST_REASON, len(reason)) <= width:
            yield Line(f"{head}{step.address:<{address_width}}  {reason}".rstrip(), tone)
        elif len(head) + len(step.address) + 2 + len(reason) <= width:
            yield Line(f"{head}{step.address}  {reason}", tone)
        else:
            yield Line(f"{head}{step.address}", tone)
            yield Line(f"      {reason}", tone)
        if step.id in told:
            if step.changes:
                yield Line(f"      {drift_text(step)}:", "warning")
                yield from (Line(f"        {line}", "warning") for line in _change_lines(step))
                yield Line(f"      {REMEDY}", "warning")
            if step.code_changes:
                yield Line(f"      {code_line(step)}", "warning")
            yield from (Line(f"      note: {note}", "warning") for note in step.notes)
        if not brief and step.error is not None:
            yield Line(f"      {step.error}", "error")


def _warning_lines(plan: Plan) -> Iterator[Line]:
    warned = [step for step in plan.steps.values() if is_noteworthy(step)]
    others = [step for step in warned if step.changes or step.notes]
    for step in others[:LISTED_WARNINGS]:
        if step.changes:
            yield Line(f"warning: {drift_text(step, str(step.id))}:", "warning")
            yield from (Line(f"    {line}", "warning") for line in _change_lines(step))
            yield Line(f"  {REMEDY}", "warning")
        yield from (Line(f"note: {step.id}: {note}", "warning") for note in step.notes)
    if (more := len(others) - LISTED_WARNINGS) > 0:
        yield Line(f"note: {_steps(more)} more with changes or notes: 'marin plan' lists all", "warning")
    yield from _code_lines(warned)


def _code_lines(steps: Iterable[PlannedStep]) -> Iterator[Line]:
    """One line for all steps in whose code the same has changed: a helper may be in each of a hundred."""
    alike: dict[str, list[PlannedStep]] = {}
    for step in steps:
        if step.code_changes:
            alike.setdefault(code_line(step), []).append(step)
    for text, changed in list(alike.items())[:LISTED_WARNINGS]:
        more = f" and {len(changed) - 1:,} more" if len(changed) > 1 else ""
        yield Line(f"note: {changed[0].id}{more}: {text}", "warning")
    if (more := len(alike) - LISTED_WARNINGS) > 0:
        yield Line(f"note: {more:,} more such changes: 'marin plan' lists all", "warning")


def drift_text(step: PlannedStep, name: str | None = None) -> str:
    """What drift means for a step: the sentence before its changed keys."""
    of = f" of {name}" if name is not None else ""
    served = "it" if step.decision is Decision.SERVE else "what was made from it"
    return f"the recipe{of} has changed, but {served} is served as it was built"


def _change_lines(step: PlannedStep) -> Iterator[str]:
    yield from map(str, step.changes[:LISTED_CHANGES])
    if (more := len(step.changes) - LISTED_CHANGES) > 0:
        yield f"… and {more:,} more: 'marin why {step.id} SCRIPT' says all"


def _counted(step: PlannedStep) -> str:
    counts = (
        (len(step.changes), "key changed", "keys changed"),
        (len(step.code_changes), "definition changed", "definitions changed"),
        (len(step.notes), "note", "notes"),
    )
    return ", ".join(f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count)


def code_line(step: PlannedStep) -> str:
    """Which definitions have changed, the first of them by name."""
    shown = ", ".join(map(str, step.code_changes[:LISTED_DEFINITIONS]))
    more = len(step.code_changes) - LISTED_DEFINITIONS
    return f"code changed since it was built: {shown}" + (f", and {more:,} more" if more > 0 else "")


def code_change_as_json(change: CodeChange) -> dict[str, Any]:
    """A changed definition: what and where it is, what happened to it, and the words for people."""
    return {
        "module": change.module,
        "name": change.name,
        "what": change.what,
        "file": change.file,
        "kind": change.kind.value,
        "text": str(change),
    }


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"


def _all(count: int) -> str:
    return "the one step is" if count == 1 else f"all {count:,} steps are"
