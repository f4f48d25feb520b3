"""Handles, plans and artifacts as notebooks show them. Nothing here reads the store, and nothing raises."""

from __future__ import annotations

import dataclasses
import functools
import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

from marin.errors import MarinError
from marin.execution.abbreviation import abbreviated
from marin.execution.failure import first_line
from marin.execution.members import take_apart
from marin.execution.plan_text import LABELS, code_line, is_noteworthy, overview
from marin.execution.planning import Decision, Plan, PlannedStep
from marin.execution.redaction import redacted_payload, shown_place
from marin.execution.remote_function import RemoteFunction
from marin.execution.showing import show

if TYPE_CHECKING:
    from marin.execution.artifact import Artifact
    from marin.execution.lazy import ArtifactStep

P = ParamSpec("P")

MAX_ROWS = 30
"""So many steps of a plan, or keys of a config, are listed, and the rest is counted."""

MAX_DEPS = 10

Row = tuple[str, str]
"""What it is and what it says, in plain text."""


def _never_raises(render: Callable[P, str]) -> Callable[P, str | None]:
    """``None`` where ``render`` fails: then a notebook shows the plain text."""

    @functools.wraps(render)
    def rendered(*args: P.args, **kwargs: P.kwargs) -> str | None:
        try:
            return render(*args, **kwargs)
        except Exception:  # noqa: BLE001  # looking at something is no reason to fail
            return None

    return rendered


@_never_raises
def handle_html(step: ArtifactStep[Any]) -> str:
    """Name, recipe and dependencies of a handle."""
    return _titled(str(step.id), f"{type(step).__name__}[{step.artifact_type.__name__}]", _handle_rows(step))


@_never_raises
def artifact_html(artifact: Artifact) -> str:
    """Path and fields of an artifact."""
    names = [spec.name for spec in dataclasses.fields(artifact)]
    rows = [(name, abbreviated(getattr(artifact, name, None), name)) for name in names if name != "path"]
    return _titled(
        type(artifact).__name__, "", [("path", artifact.path or "not in a store"), *_limited(rows, "fields")]
    )


@_never_raises
def plan_html(plan: Plan) -> str:
    """What will happen to how many steps; of a large plan those that are not simply served."""
    steps = list(plan.steps.values())
    listed = steps if len(steps) <= MAX_ROWS else [step for step in steps if _is_interesting(step)]
    rows = "".join(_step_row(step) for step in listed[:MAX_ROWS])
    hidden = len(steps) - len(listed[:MAX_ROWS])
    more = f"<div>and {hidden:,} more</div>" if hidden else ""
    return f"<div><strong>{_text(overview(plan))}</strong><table>{rows}</table>{more}</div>"


def _is_interesting(step: PlannedStep) -> bool:
    return step.decision not in (Decision.SERVE, Decision.SKIP) or is_noteworthy(step)


def _step_row(step: PlannedStep) -> str:
    told = [first_line(step.reason), *map(str, step.changes), *map(str, step.notes)]
    if step.code_changes:
        told.append(code_line(step))
    if step.error is not None:
        told.append(str(step.error))
    cells = (LABELS[step.decision], str(step.id), "\n".join(abbreviated_text(text) for text in told))
    return f"<tr>{''.join(f'<td {_LEFT}>{_text(cell)}</td>' for cell in cells)}</tr>"


def _handle_rows(step: ArtifactStep[Any]) -> Iterator[Row]:
    yield "address", step.id.address
    yield "made at", step.made_at
    if step.pin is not None:
        yield "pinned to", step.pin
    if step.source is not None:
        yield "adopted from", step.source.path
    run: Any = step.run
    if isinstance(run, RemoteFunction):
        yield "runs", f"in a process of its own, {run.resources}"
    if step.deps:
        names = [str(dep.id) for dep in step.deps[:MAX_DEPS]]
        yield "needs", ", ".join(names) + (f" and {len(step.deps) - MAX_DEPS:,} more" if step.deps[MAX_DEPS:] else "")
    for key, value in step.runtime_args.items():
        yield f"runtime argument {key}", abbreviated(value, key)
    yield from _recipe_rows(step)


def _recipe_rows(step: ArtifactStep[Any]) -> Iterator[Row]:
    try:
        fingerprint = step.fingerprint()
    except MarinError as fault:
        yield "can't be built", str(fault)
        return
    payload = redacted_payload(fingerprint.payload)
    if "function" in payload:
        function = payload["function"]
        yield "function", function if isinstance(function, str) else show(function)
    yield "fingerprint", str(fingerprint)
    for part in ("config", "fields"):
        if part in payload:
            yield from _limited([(part + suffix, show(value)) for suffix, value in _members(payload[part])], "keys")


def _members(encoded: Any) -> Iterable[tuple[str, Any]]:
    parts = take_apart(encoded)
    if parts is not None and parts.members:
        return parts.members.values()
    return ((f".{name}", value) for name, value in encoded.items()) if isinstance(encoded, dict) else (("", encoded),)


def _limited(rows: Sequence[Row], what: str) -> list[Row]:
    more = [("…", f"{len(rows) - MAX_ROWS:,} more {what}")] if len(rows) > MAX_ROWS else []
    return [*rows[:MAX_ROWS], *more]


def abbreviated_text(text: str) -> str:
    """A line of text that is not too long for a cell."""
    return text if len(text) <= 300 else f"{text[:299]}…"


_LEFT = 'style="text-align:left;vertical-align:top;white-space:pre-wrap"'


def _titled(title: str, kind: str, rows: Iterable[Row]) -> str:
    body = "".join(
        f"<tr><th {_LEFT}>{_text(name)}</th><td {_LEFT}>{_text(abbreviated_text(shown_place(text)))}</td></tr>"
        for name, text in rows
    )
    return f"<div><strong>{_text(title)}</strong> {_text(kind)}<table>{body}</table></div>"


def _text(text: object) -> str:
    return html.escape(str(text))
