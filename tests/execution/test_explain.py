from __future__ import annotations

import pytest

from marin.errors import NewerRecordError
from marin.execution.code_changes import RecordedCode, RecordedModule, code_changes
from marin.execution.explain import CodeSince, explain
from marin.execution.planning import Cause, Decision, Observation
from tests.execution.graphs import made, planned, seen, served, step

RAW = step("raw")
TOKENS = step("tokens", RAW)
MODEL = step("model", TOKENS)


def told(plan, handle, *, build=None, **others):
    return explain(plan, handle.id, build=build, others={other.id: made(other) for other in others.values()})


def ids(steps):
    return [str(step.id).removesuffix("@2026.07.01") for step in steps]


def test_of_a_step_that_is_built_who_needs_it_is_told_up_to_what_was_asked_for():
    plan = planned(MODEL, observed={})
    assert ids(told(plan, RAW).chain) == ["tokens", "model"]
    assert ids(told(plan, TOKENS).inputs) == ["raw"]
    assert told(plan, MODEL).is_target
    assert told(plan, MODEL).chain == ()


def test_what_is_served_already_does_not_need_it():
    other = step("other", RAW)
    plan = planned(other, MODEL, observed=served(other))
    assert ids(told(plan, RAW).chain) == ["tokens", "model"]


def test_of_a_step_that_is_skipped_what_makes_it_unneeded_is_told():
    plan = planned(MODEL, observed=served(MODEL))
    assert ids(told(plan, RAW).chain) == ["tokens", "model"]
    plan = planned(MODEL, observed=served(MODEL, TOKENS))
    explanation = told(plan, RAW)
    assert ids(explanation.chain) == ["tokens", "model"]
    assert explanation.planned.decision is Decision.SKIP


def test_of_a_step_that_is_refused_though_nobody_needs_it_there_is_no_chain():
    raw = step("raw", expected_fingerprint="1:00000000")
    model = step("model", raw)
    explanation = told(planned(model, observed=served(model)), raw)
    assert explanation.planned.cause is Cause.FINGERPRINT
    assert (explanation.chain, explanation.is_target) == ((), False)


def test_drift_and_notes_above_are_told_and_those_beside_are_not():
    changed, beside = step("raw", lr=0.2), step("beside", lr=0.2)
    model = step("model", step("tokens", changed))
    plan = planned(model, beside, observed=served(model, TOKENS, RAW, step("beside")))
    assert ids(told(plan, model).above) == ["raw"]
    assert [str(change) for change in told(plan, model).above[0].changes] == ['config["lr"]: 0.1 → 0.2']


def test_what_else_the_run_would_be_refused_for_is_told():
    bad = step("bad")
    plan = planned(MODEL, bad, observed={bad.id: Observation(fault=NewerRecordError("too new"))})
    assert ids(told(plan, MODEL).refused) == ["bad"]
    assert told(plan, bad).refused == ()


def test_of_a_new_version_the_difference_to_the_newest_one_that_is_there_is_told():
    plan = planned(step("model@2026.07.02", lr=0.2), observed={})
    other = told(plan, step("model@2026.07.02"), newest=step("model"), oldest=step("model@2026.06.01")).other_version
    assert other is not None
    assert str(other.id) == "model@2026.07.01"
    assert [str(change) for change in other.changes] == ['config["lr"]: 0.1 → 0.2']


def test_of_what_is_there_other_versions_are_no_matter():
    build = made(MODEL)
    plan = planned(MODEL, observed={MODEL.id: seen(MODEL, build)})
    explanation = told(plan, MODEL, build=build, other=step("model@2026.07.02"))
    assert explanation.other_version is None
    assert explanation.recorded == build.fingerprint


def code(digest: str = "aa", version: str = "1.0", **unknown: str) -> RecordedCode:
    modules = {"helpers": RecordedModule(file="helpers.py", definitions={"clean": f"function:{digest}"})}
    return RecordedCode(scheme=1, modules=modules, distributions={"regex": version}, unknown=unknown)


def code_since(recorded: RecordedCode | None, now: RecordedCode, *, is_served: bool = True):
    build = made(RAW, code=recorded)
    changes = () if recorded is None else code_changes(recorded, now)
    observed = {RAW.id: seen(RAW, build, code_changes=changes)} if is_served else {}
    return explain(planned(RAW, observed=observed), RAW.id, build=build, others={}, code=now).code


def test_changed_code_is_told_with_the_versions_of_packages():
    since = code_since(code("aa", "1.0"), code("bb", "1.1"))
    assert since is not None
    assert [str(change) for change in since.changes] == ["helpers.clean (helpers.py)"]
    assert since.distributions == {"regex": ("1.0", "1.1")}
    assert code_since(code(), code()) == CodeSince(is_recorded=True)


def test_code_that_was_not_recorded_or_has_no_source_is_not_called_unchanged():
    assert code_since(None, code()) == CodeSince(is_recorded=False)
    assert code_since(code(), code(lib="no source")) == CodeSince(is_recorded=True, unknown={"lib": "no source"})


def test_of_a_step_that_will_be_built_the_code_is_no_matter():
    assert code_since(code("aa"), code("bb"), is_served=False) is None


@pytest.mark.parametrize("served_end", [False, True])
def test_a_very_long_chain_is_told_from_end_to_end(served_end: bool):
    handles = [step("s0")]
    for number in range(1, 3000):
        handles.append(step(f"s{number}", handles[-1]))
    plan = planned(handles[-1], observed=served(handles[-1]) if served_end else {})
    assert len(told(plan, handles[0]).chain) == 2999
