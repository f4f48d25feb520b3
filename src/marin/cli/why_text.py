"""What ``marin why`` answers, as lines for people. Pure: an answer goes in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from marin.cli.why_answer import Answer
from marin.execution.ancestry import Ancestor, Fate
from marin.execution.catalog import Condition
from marin.execution.drift import Change
from marin.execution.explain import CodeSince, Explanation, OtherVersion
from marin.execution.failure import first_line
from marin.execution.meter import duration
from marin.execution.notes import MissingInput, OtherScheme, StaleInput
from marin.execution.plan_text import (
    LABELS,
    REMEDY,
    Line,
    code_line,
    drift_text,
)
from marin.execution.planning import Cause, Decision, PlannedStep
from marin.execution.record import Build

LISTED = 20
"""So many inputs and steps are listed in one place; ``--json`` has all."""

_ENDS_OF_CHAIN = 4
_KEY_WIDTH = 12
_HEADS = {
    Decision.BUILD: "would be built",
    Decision.ADOPT: "would be adopted",
    Decision.SERVE: "is served as it is",
    Decision.SKIP: "would be left alone",
    Decision.REFUSE: "is refused",
}


def answer_lines(answer: Answer) -> Iterator[Line]:
    """The decision first, then what leads to it, then what differs, then what the record says."""
    if answer.explanation is not None:
        yield from _explanation_lines(answer.explanation)
    else:
        yield Line(f"{answer.id} {_standing(answer)}", "strong")
    yield from _record_lines(answer)
    yield from _ancestor_lines(answer)
    if answer.explanation is not None:
        yield from _above_lines(answer.explanation, answer.ancestors)
    elif answer.comparison is not None:
        yield from _comparison_lines(answer)


# By the plan


def _explanation_lines(told: Explanation) -> Iterator[Line]:
    step = told.planned
    yield Line(f"{step.id} {_HEADS[step.decision]}: {first_line(step.reason)}", "strong")
    if step.error is not None:
        yield Line(f"  {step.error}", "error")
    yield from _chain_lines(told)
    if step.changes:
        yield Line(f"  {drift_text(step)}:", "warning")
        yield from _changes(step.changes)
        yield Line(f"  {REMEDY}", "warning")
    # Inputs are told below, from the records, with those further up.
    others = (note for note in step.notes if not isinstance(note, StaleInput | MissingInput))
    yield from (Line(f"  note: {note}", "warning") for note in others)
    yield from _code_lines(told.code)
    yield from _other_version_lines(told.other_version)
    yield from _fingerprint_lines(told)
    if told.inputs:
        yield Line("  depends on")
        yield from _step_lines(told.inputs)
    if told.refused:
        yield Line("  a run would be refused, because of", "error")
        yield from _step_lines(told.refused, tone="error")


def _chain_lines(told: Explanation) -> Iterator[Line]:
    if told.is_target:
        yield _fact("needed", "asked for by the script")
    elif told.planned.decision is Decision.SKIP:
        yield Line("  not needed, because of")
        yield from _step_lines(_ends(told.chain))
    elif told.chain:
        yield Line("  needed by")
        yield from _step_lines(_ends(told.chain), last=", which was asked for")
    else:
        yield _fact("needed", "by nobody in this run")


def _ends(chain: tuple[PlannedStep, ...]) -> list[PlannedStep | str]:
    if len(chain) <= 2 * _ENDS_OF_CHAIN:
        return list(chain)
    between = len(chain) - 2 * _ENDS_OF_CHAIN
    return [*chain[:_ENDS_OF_CHAIN], f"… {between:,} more …", *chain[-_ENDS_OF_CHAIN:]]


def _step_lines(steps: Iterable[PlannedStep | str], *, last: str = "", tone: Any = "plain") -> Iterator[Line]:
    steps = list(steps)
    shown = steps[:LISTED]
    width = max((len(str(step.id)) for step in shown if isinstance(step, PlannedStep)), default=0)
    for at, step in enumerate(shown):
        if isinstance(step, str):
            yield Line(f"    {step}", "dim")
            continue
        end = last if at == len(steps) - 1 else ""
        reason = first_line(step.reason)
        yield Line(f"    {step.id!s:<{width}}  {LABELS[step.decision]:<6}  {reason}{end}", tone)
    yield from _more(len(steps) - LISTED)


def _code_lines(code: CodeSince | None) -> Iterator[Line]:
    if code is None:
        return
    if not code.is_recorded:
        yield _fact("code", "not recorded, so nobody can tell whether it has changed")
        return
    if code.changes:
        yield Line("  code changed since it was built:", "warning")
        yield from (Line(f"    {change}", "warning") for change in code.changes[:LISTED])
        yield from _more(len(code.changes) - LISTED)
    elif not code.unknown:
        yield _fact("code", "not changed since it was built")
    for name, (then, now) in code.distributions.items():
        yield _fact("package", f"{name}: {then or 'not used'} → {now or 'not used'}")
    for name, reason in code.unknown.items():
        yield _fact("unknown code", f"{name}: {reason}")


def _other_version_lines(other: OtherVersion | None) -> Iterator[Line]:
    if other is None:
        return
    there = f"  {other.id} is there, built {other.build.finished}"
    if other.changes:
        yield Line(f"{there}, from another recipe:")
        yield from _changes(other.changes, "plain")
    elif other.notes:
        yield Line(f"{there}: {other.notes[0]}")
    else:
        yield Line(f"{there}, from the same recipe")


def _fingerprint_lines(told: Explanation) -> Iterator[Line]:
    step, recorded = told.planned, told.recorded
    now = step.step.fingerprint()
    how = ""
    if recorded is not None and recorded.payload:
        is_other = any(isinstance(note, OtherScheme) for note in step.notes) or recorded.scheme != now.scheme
        same = not is_other and recorded.digest == now.digest
        how = ", as recorded" if same else f", recorded is {recorded.scheme}:{recorded.digest[:16]}"
        how += " of another scheme" if is_other else ""
    yield _fact("fingerprint", f"{now}{how}")
    if step.step.expected_fingerprint is not None:
        holds = "which does not hold" if step.cause is Cause.FINGERPRINT else "which holds"
        yield _fact("expected", f"{step.step.expected_fingerprint}, {holds}")


def _above_lines(told: Explanation, ancestors: Iterable[Ancestor]) -> Iterator[Line]:
    told_already = {(ancestor.id, ancestor.used.build_id) for ancestor in ancestors}
    lines: list[Line] = []
    for step in told.above[:LISTED]:
        if step.changes:
            lines.append(Line(f"    {drift_text(step, str(step.id))}:", "warning"))
            lines += _changes(step.changes, indent=6)
        if step.code_changes:
            lines.append(Line(f"    {step.id}: {code_line(step)}", "warning"))
        for note in step.notes:
            if isinstance(note, StaleInput | MissingInput) and (note.id, note.used_build) in told_already:
                continue
            lines.append(Line(f"    {step.id}: {note}", "warning"))
    lines += _more(len(told.above) - LISTED)
    if lines:
        yield Line("  further up")
        yield from lines


# By the records


def _standing(answer: Answer) -> str:
    entry = answer.entry
    assert entry is not None  # without a script there is a record
    condition = entry.condition
    if condition is Condition.BUILT:
        every = "rebuilt by every run that makes it" if answer.id.is_mutable else "served as it is"
        return f"is built: {every}"
    kept = "; the build before is there" if entry.build is not None else ""
    return {
        Condition.BUILDING: "is being built: other runs wait for it",
        Condition.REBUILDING: "is being rebuilt: the build before is served meanwhile",
        Condition.INTERRUPTED: f"was interrupted: its builder has ended, the next run takes over{kept}",
        Condition.FAILED: f"has failed: the next run tries again{kept}",
    }[condition]


def _record_lines(answer: Answer) -> Iterator[Line]:
    entry, build = answer.entry, answer.build
    if build is not None:
        who = build.provenance.get("user"), build.provenance.get("host")
        by = f" by {' on '.join(map(str, who))}" if all(who) else ""
        yield _fact("built", f"{build.finished}{by}, in {duration(build.seconds)} (build {build.build_id})")
        yield _fact("adopted from" if build.source is not None else "data", answer.data)
        if answer.explanation is None:
            yield _fact("fingerprint", f"{build.fingerprint.scheme}:{build.fingerprint.digest[:16]}")
    if answer.holder is not None:
        yield _fact("builder", str(answer.holder), "good" if answer.holder.life == "alive" else "warning")
    if entry is not None and entry.attempt is not None and entry.attempt.error is not None:
        yield _fact("attempt", f"of {entry.attempt.started} failed")
        first, *more = entry.attempt.error.strip().splitlines() or [""]
        yield _fact("error", first, "error")
        yield from (Line(f"  {'':{_KEY_WIDTH}}  {line}", "error") for line in more[:LISTED])
        if entry.attempt.frame:
            yield _fact("at", entry.attempt.frame)
    if answer.log is not None:
        yield _fact("log", answer.log)


def _ancestor_lines(answer: Answer) -> Iterator[Line]:
    told = [ancestor for ancestor in answer.ancestors if ancestor.fate is not Fate.SAME]
    same = len(answer.ancestors) - len(told)
    if not answer.ancestors:
        return
    if not told:
        direct = sum(1 for ancestor in answer.ancestors if ancestor.reader is None)
        count = f"{direct:,}" + (f" and {same - direct:,} further up" if same > direct else "")
        yield _fact("inputs", f"{count}, {'not' if same == 1 else 'none of them'} rebuilt since")
        return
    yield Line("  inputs since then")
    width = max(len(str(ancestor.id)) for ancestor in told[:LISTED])
    for ancestor in told[:LISTED]:
        yield Line(f"    {ancestor.id!s:<{width}}  {_fate_text(ancestor)}", _FATE_TONES.get(ancestor.fate, "plain"))
    yield from _more(len(told) - LISTED)
    if same:
        yield Line(f"    {same:,} more not rebuilt", "dim")


_FATE_TONES: dict[Fate, Any] = {Fate.REBUILT: "warning", Fate.MISSING: "warning", Fate.UNREADABLE: "error"}


def _fate_text(ancestor: Ancestor) -> str:
    used = ancestor.used
    through = f" by {ancestor.reader.id}" if ancestor.reader is not None else ""
    match ancestor.fate:
        case Fate.REBUILT if isinstance(ancestor.now, Build):
            now = f"rebuilt {ancestor.now.finished} (build {ancestor.now.build_id})"
            return f"stale input: {now}, used{through} was build {used.build_id}"
        case Fate.MISSING:
            return f"no longer in the store, used{through} was build {used.build_id}"
        case Fate.ELSEWHERE:
            return f"read{through} from {used.path}, outside of the store"
        case Fate.UNREADABLE:
            return f"its record can't be read: {ancestor.now}"
        case _:
            return "as it was used"


def _comparison_lines(answer: Answer) -> Iterator[Line]:
    found = answer.comparison
    assert found is not None  # asked for by the caller
    yield Line("  to compare its recipe with what a script says now:")
    if found.command is None:
        yield Line(f"    marin why {answer.id} SCRIPT")
        yield Line(f"    ({found.why_not})", "dim")
    else:
        yield Line(f"    {found.command}")


def _changes(changes: Iterable[Change], tone: Any = "warning", indent: int = 4) -> Iterator[Line]:
    return (Line(f"{' ' * indent}{change}", tone) for change in changes)


def _more(count: int) -> Iterator[Line]:
    if count > 0:
        yield Line(f"    … and {count:,} more: --json has all", "dim")


def _fact(key: str, value: str | None, tone: Any = "plain") -> Line:
    return Line(f"  {key:<{_KEY_WIDTH}}  {value}", tone)
