from __future__ import annotations

import pytest

from marin.errors import CorruptRecordError, NewerRecordError, StoreError
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.notes import MissingInput, OtherScheme, StaleInput, UnusableRecord, note_as_json
from marin.execution.plan_text import plan_as_json, render_plan
from marin.execution.planning import Cause, Decision, Observation
from marin.execution.remote_function import remote
from tests.execution.graphs import made, planned, seen, served, step
from tests.execution.records import STRANGER, attempt

BUILT, MODEL, DEV = step("raw"), step("model", step("raw")), step("raw@dev")


def make(config):
    pass


# Every decision, for every cause

CASES = [
    (step("raw"), Observation(), None, "build", Cause.NOT_BUILT, "not built yet"),
    (DEV, seen(DEV, made(DEV)), None, "build", Cause.MUTABLE, "dev versions are rebuilt at every run"),
    (
        step("raw"),
        seen(BUILT, attempt=attempt(owner=STRANGER)),
        None,
        "build",
        Cause.UNDER_WAY,
        "being built by pid 4 of anna on node7 since 2026-07-02T10:00:00Z: will wait for it",
    ),
    (
        step("raw"),
        seen(BUILT, attempt=attempt(error="ValueError: no verse")),
        None,
        "build",
        Cause.FAILED,
        "the attempt of 2026-07-02T10:00:00Z failed: ValueError: no verse",
    ),
    (
        step("raw"),
        seen(BUILT, attempt=attempt(), holder_is_gone=True),
        None,
        "build",
        Cause.KILLED,
        "the attempt of 2026-07-02T10:00:00Z was killed",
    ),
    (
        step("raw"),
        Observation(torn=CorruptRecordError("half a record")),
        None,
        "build",
        Cause.TORN,
        "its record is torn: built anew, and what lies there is kept aside",
    ),
    (
        ArtifactStep.adopt(name="raw", version="2026.07.01", source="/data/raw", kind=Artifact),
        Observation(),
        None,
        "adopt",
        Cause.NOT_ADOPTED,
        "adopts /data/raw",
    ),
    (step("raw"), seen(BUILT, made(BUILT)), None, "serve", Cause.BUILT, "built 2026-07-01T10:01:15Z"),
    (step("raw", pin="/there"), Observation(pinned=made(BUILT)), None, "serve", Cause.PINNED, "pinned to /there"),
    (
        DEV,
        seen(DEV, made(DEV)),
        ("other",),
        "serve",
        Cause.TAKEN,
        "built 2026-07-01T10:01:15Z; --only takes it as it is",
    ),
    (
        step("raw", expected_fingerprint="1:00000000"),
        Observation(),
        None,
        "refuse",
        Cause.FINGERPRINT,
        "expected_fingerprint does not hold",
    ),
    (step("raw"), Observation(fault=NewerRecordError("too new")), None, "refuse", Cause.UNUSABLE, "NewerRecordError"),
]


@pytest.mark.parametrize(
    ("handle", "observation", "only", "decision", "cause", "reason"),
    CASES,
    ids=[f"{decision}, {cause}" for _, _, _, decision, cause, _ in CASES],
)
def test_each_decision_has_its_cause_and_its_reason(handle, observation, only, decision, cause, reason):
    told = planned(handle, only=only, observed={handle.id: observation}).steps[handle.id]
    assert (told.decision.value, told.cause, told.reason) == (decision, cause, reason)
    assert (told.error is not None) == (told.decision is Decision.REFUSE)


@pytest.mark.parametrize(
    ("raw", "cause", "reason"),
    [
        (seen(BUILT, made(BUILT)), Cause.NOT_NEEDED, "not needed: nothing that is built now reads it"),
        (Observation(), Cause.ABSENT, "not built, not needed: nothing that is built now reads it"),
    ],
)
def test_what_is_skipped_says_whether_it_is_there(raw, cause, reason):
    told = planned(MODEL, observed={**served(MODEL), BUILT.id: raw}).steps[BUILT.id]
    assert (told.decision, told.cause, told.reason) == (Decision.SKIP, cause, reason)


def test_an_input_that_is_not_built_and_left_out_is_refused():
    told = planned(MODEL, only=("model",), observed={}).steps[BUILT.id]
    assert (told.decision, told.cause) == (Decision.REFUSE, Cause.LEFT_OUT)
    assert told.reason == "not built, and not among the steps of --only"


def test_a_target_that_is_left_out_is_not_asked_for_but_handed_out_if_it_is_there():
    told = planned(MODEL, only=("raw",), observed={})
    assert [step.decision.value for step in told.steps.values()] == ["build", "skip"]
    assert told.steps[MODEL.id].cause is Cause.ABSENT
    told = planned(MODEL, only=("raw",), observed=served(MODEL))
    assert [step.decision.value for step in told.steps.values()] == ["build", "serve"]


def test_no_decision_and_no_cause_is_without_a_case():
    named = {cause for _, _, _, _, cause, _ in CASES} | {Cause.NOT_NEEDED, Cause.ABSENT, Cause.LEFT_OUT}
    assert named == set(Cause)
    assert {decision for _, _, _, decision, _, _ in CASES} | {"skip"} == {decision.value for decision in Decision}


def test_an_attempt_that_can_be_gone_on_from_is_told_with_that():
    handle = step("raw", run=remote(make, resumable=True))
    left = attempt(error="killed", fingerprint_digest=handle.fingerprint().digest)
    told = planned(handle, observed={handle.id: seen(handle, attempt=left)}).steps[handle.id]
    assert told.reason.endswith("failed: killed; goes on from what it left")


# Drift


@pytest.mark.parametrize("depth", [1, 2, 30])
def test_drift_above_a_cached_child_is_told(depth: int):
    """In the upstream project a changed recipe was silent wherever something below it was served from the store."""
    handles = [step("raw", lr=0.2)]
    for number in range(depth):
        handles.append(step(f"s{number}", handles[-1]))
    plan = planned(handles[-1], observed=served(step("raw", lr=0.1), *handles[1:]))
    assert plan.steps[handles[-1].id].decision is Decision.SERVE
    drifted = {str(told.id): [str(change) for change in told.changes] for told in plan.steps.values() if told.changes}
    assert drifted == {"raw@2026.07.01": ['config["lr"]: 0.1 → 0.2']}
    text = render_plan(plan)
    assert text.count('config["lr"]: 0.1 → 0.2') == 1
    assert "the recipe has changed, but what was made from it is served as it was built" in text


def test_drift_above_a_cached_child_is_told_also_where_the_data_is_gone():
    old, new = step("raw", lr=0.1), step("raw", lr=0.2)
    observed = served(step("model", old)) | {old.id: seen(old, made(old), fault=StoreError("its data is gone"))}
    told = planned(step("model", new), observed=observed).steps[new.id]
    assert [str(change) for change in told.changes] == ['config["lr"]: 0.1 → 0.2']
    assert told.notes == (UnusableRecord(error="StoreError", message="its data is gone"),)


def test_another_scheme_is_a_note_and_no_drift():
    for scheme, age in ((0, "an older"), (2, "a newer")):
        told = planned(BUILT, observed={BUILT.id: seen(BUILT, made(BUILT, scheme=scheme))}).steps[BUILT.id]
        assert (told.decision, told.changes) == (Decision.SERVE, ())
        assert told.notes == (OtherScheme(recorded=scheme, now=1),)
        assert f"recorded with {age} scheme of fingerprints ({scheme}, now 1): not compared" in str(told.notes[0])


# Inputs


def stale(name: str, through: tuple[str, ...] = ()) -> StaleInput:
    return StaleInput(
        name=name,
        version="2026.07.01",
        used_build="b1",
        newer_build="b2",
        rebuilt_at="2026-07-03T00:00:00Z",
        through=tuple(step(between).id for between in through),
    )


def chain(length: int):
    handles = [step("s0")]
    for number in range(1, length):
        handles.append(step(f"s{number}", handles[-1]))
    return handles


def test_a_stale_input_is_told_with_both_builds_and_when():
    raw, model = chain(2)
    rebuilt = seen(raw, made(raw, "b2", finished="2026-07-03T00:00:00Z"))
    told = planned(model, observed=served(model) | {raw.id: rebuilt}).steps[model.id]
    assert told.notes == (stale("s0"),)
    assert str(told.notes[0]) == "stale input: s0@2026.07.01 was rebuilt 2026-07-03T00:00:00Z"
    assert note_as_json(told.notes[0]) == {
        "kind": "stale input",
        "text": "stale input: s0@2026.07.01 was rebuilt 2026-07-03T00:00:00Z",
        "name": "s0",
        "version": "2026.07.01",
        "used_build": "b1",
        "newer_build": "b2",
        "rebuilt_at": "2026-07-03T00:00:00Z",
        "through": [],
    }


def test_a_stale_input_of_an_input_is_told_where_it_happened_and_at_what_is_served():
    handles = chain(5)
    rebuilt = seen(handles[0], made(handles[0], "b2", finished="2026-07-03T00:00:00Z"))
    plan = planned(handles[-1], observed=served(*handles) | {handles[0].id: rebuilt})
    assert {str(told.id): told.notes for told in plan.steps.values() if told.notes} == {
        "s1@2026.07.01": (stale("s0"),),
        "s4@2026.07.01": (stale("s0", ("s1",)),),
    }
    said = str(plan.steps[handles[-1].id].notes[0])
    assert said == (
        "stale input of an input: s0@2026.07.01 was rebuilt 2026-07-03T00:00:00Z, after s1@2026.07.01 was made from it"
    )


def test_an_artifact_that_was_made_after_all_of_its_inputs_has_no_stale_one():
    handles = chain(3)
    observed = {handle.id: seen(handle, made(handle, "b2", used="b2")) for handle in handles}
    assert all(told.notes == () for told in planned(handles[-1], observed=observed).steps.values())


def test_an_input_that_is_gone_is_told():
    model = chain(2)[-1]
    told = planned(model, observed=served(model)).steps[model.id]
    assert told.notes == (MissingInput(name="s0", version="2026.07.01", used_build="b1"),)
    assert str(told.notes[0]) == "its input s0@2026.07.01 is no longer in the store"


def test_a_pinned_input_is_not_gone():
    model = step("model", step("raw"))
    pinned = step("raw", pin="/there")
    observed = served(model) | {pinned.id: Observation(pinned=made(BUILT))}
    assert planned(step("model", pinned), observed=observed).steps[model.id].notes == ()


def test_other_data_behind_a_pin_is_a_stale_input():
    pinned = step("raw", pin="/there")
    observed = served(MODEL) | {pinned.id: Observation(pinned=made(BUILT, "pinned", finished=""))}
    told = planned(step("model", pinned), observed=observed).steps[MODEL.id]
    assert [str(note) for note in told.notes] == ["stale input: raw@2026.07.01 is other data now"]


def test_the_inputs_of_what_is_pinned_are_no_matter_of_this_store():
    pinned = step("model", BUILT, pin="/there")
    observed = served(BUILT) | {pinned.id: Observation(pinned=made(MODEL, "b9"))}
    observed[BUILT.id] = seen(BUILT, made(BUILT, "b2"))
    assert planned(pinned, observed=observed).steps[pinned.id].notes == ()


def test_a_record_that_is_not_needed_and_can_not_be_used_hinders_nobody_but_is_told():
    for observation in (
        Observation(fault=NewerRecordError("too new")),
        Observation(torn=CorruptRecordError("half a record")),
    ):
        plan = planned(MODEL, observed=served(MODEL) | {BUILT.id: observation})
        assert plan.errors == []
        assert plan.steps[BUILT.id].notes[0].kind == "unusable record"


# Large plans


def test_a_large_plan_has_one_line_for_each_step_and_details_of_the_first_few():
    old = [step(f"s{number}", lr=0.1) for number in range(1000)]
    plan = planned(*(step(f"s{number}", lr=0.2) for number in range(1000)), observed=served(*old))
    lines = render_plan(plan).splitlines()
    assert len(lines) == 1000 + 20 * 3 + 1
    assert "cached  s0/2026.07.01    built 2026-07-01T10:01:15Z" in lines[0]
    assert lines[-2].endswith("Z; 1 key changed: 'marin why s999@2026.07.01 SCRIPT'")


def test_a_step_with_very_many_changed_keys_lists_some_and_says_who_tells_the_rest():
    def wide(value):
        return ArtifactStep(
            name="raw", version="2026.07.01", run="m:f", build_config=lambda ctx: {f"k{n:03}": value for n in range(99)}
        )

    plan = planned(wide(2), observed=served(wide(1)))
    text = render_plan(plan)
    assert text.count(": 1 → 2") == 12
    assert "… and 87 more: 'marin why raw@2026.07.01 SCRIPT' says all\n" in text
    assert len(plan_as_json(plan)["steps"][0]["changes"]) == 99


def test_planning_a_long_chain_above_a_rebuilt_input_notes_each_fact_once():
    handles = chain(3000)
    rebuilt = seen(handles[0], made(handles[0], "b2"))
    plan = planned(handles[-1], observed=served(*handles) | {handles[0].id: rebuilt})
    assert sum(len(told.notes) for told in plan.steps.values()) == 2
    assert sum(len(note.through) for told in plan.steps.values() for note in told.notes) == 1
