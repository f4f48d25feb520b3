"""What ``marin why`` answers, for programs. Pure: an answer goes in."""

from __future__ import annotations

from typing import Any

from marin.cli.why_answer import Answer
from marin.execution.ancestry import Ancestor
from marin.execution.explain import CodeSince, Explanation
from marin.execution.plan_text import change_as_json, code_change_as_json, note_as_json, step_as_json
from marin.execution.planning import PlannedStep
from marin.execution.record import Build


def answer_as_json(answer: Answer) -> dict[str, Any]:
    """The answer as JSON values. ``plan`` is null without a script, ``compare_with`` with one."""
    entry, build, holder = answer.entry, answer.build, answer.holder
    attempt = None if entry is None else entry.attempt
    return {
        "id": str(answer.id),
        "name": answer.id.name,
        "version": answer.id.version,
        "state": None if entry is None else entry.condition.value,
        "data": answer.data,
        "log": answer.log,
        "finished": None if build is None else build.finished,
        "build_id": None if build is None else build.build_id,
        "fingerprint": None if build is None else f"{build.fingerprint.scheme}:{build.fingerprint.digest}",
        "builder": None
        if holder is None
        else {"name": holder.name, "since": holder.since, "life": holder.life, "renewals": holder.renewals},
        "error": None if attempt is None else attempt.error,
        "made_from": [_ancestor_as_json(ancestor) for ancestor in answer.ancestors],
        "plan": None if answer.explanation is None else _explanation_as_json(answer.explanation),
        "compare_with": None if answer.comparison is None else answer.comparison.command,
    }


def _ancestor_as_json(ancestor: Ancestor) -> dict[str, Any]:
    now = ancestor.now
    return {
        "id": str(ancestor.id),
        "fate": ancestor.fate.value,
        "used_build": ancestor.used.build_id,
        "path": ancestor.used.path,
        "build": now.build_id if isinstance(now, Build) else None,
        "finished": now.finished if isinstance(now, Build) else None,
        "used_by": None if ancestor.reader is None else str(ancestor.reader.id),
    }


def _explanation_as_json(told: Explanation) -> dict[str, Any]:
    now, other = told.planned.step.fingerprint(), told.other_version
    return {
        **step_as_json(told.planned),
        "is_target": told.is_target,
        "chain": [str(step.id) for step in told.chain],
        "inputs": [_brief(step) for step in told.inputs],
        "above": [step_as_json(step) for step in told.above],
        "refused": [step_as_json(step) for step in told.refused],
        "code": None if told.code is None else _code_as_json(told.code),
        "fingerprint": f"{now.scheme}:{now.digest}",
        "recorded_fingerprint": None if told.recorded is None else f"{told.recorded.scheme}:{told.recorded.digest}",
        "expected_fingerprint": told.planned.step.expected_fingerprint,
        "other_version": None
        if other is None
        else {
            "id": str(other.id),
            "finished": other.build.finished,
            "changes": [change_as_json(change) for change in other.changes],
            "notes": [note_as_json(note) for note in other.notes],
        },
    }


def _code_as_json(code: CodeSince) -> dict[str, Any]:
    return {
        "is_recorded": code.is_recorded,
        "changes": [code_change_as_json(change) for change in code.changes],
        "distributions": {name: {"then": then, "now": now} for name, (then, now) in code.distributions.items()},
        "unknown": dict(code.unknown),
    }


def _brief(step: PlannedStep) -> dict[str, str]:
    return {"step": str(step.id), "decision": step.decision.value, "cause": step.cause.value, "reason": step.reason}
