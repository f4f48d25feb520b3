from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.execution.comparison import ABSENT, SECTIONS, Row, compare_records, leaves
from marin.execution.record import Record, RecordedFingerprint, State, encode_record
from tests.execution.graphs import made, step
from tests.execution.records import attempt, build

NAMES = ("a@dev", "b@dev")


def record(build=None, attempt=None, **more: Any) -> dict[str, Any]:
    state = State.BUILT if attempt is None else State.FAILED if attempt.error else State.BUILDING
    whole = Record(name="a", version="dev", state=state, build=build, attempt=attempt)
    return {**json.loads(encode_record(whole)), **more}


def differing(a: dict[str, Any], b: dict[str, Any], section: str) -> dict[str, tuple[Any, Any]]:
    rows = compare_records(a, b, NAMES).differing
    return {row.key: (row.a, row.b) for row in rows if row.section == section}


def recipe(**config: Any) -> RecordedFingerprint:
    handle = step("a", lr=0.1, run="m:f") if not config else step("a", **config)
    fingerprint = handle.fingerprint()
    return RecordedFingerprint(scheme=1, digest=fingerprint.digest, payload=fingerprint.payload)


def test_a_record_is_equal_to_itself_in_everything():
    same = record(build(deps=("raw@dev",), provenance={"user": "anna"}, runtime_args={"device": "cpu"}))
    compared = compare_records(same, same, NAMES)
    assert compared.differing == ()
    assert {row.section for row in compared.rows} == {"artifact", "recipe", "inputs", "runtime", "result"} | {
        "data",
        "provenance",
    }


def test_the_recipe_is_compared_key_by_key():
    compared = compare_records(
        record(build(fingerprint=recipe(lr=0.1))), record(build(fingerprint=recipe(lr=0.2))), NAMES
    )
    (row,) = (row for row in compared.differing if row.key == 'config["lr"]')
    assert (row.section, row.shown) == ("recipe", ("0.1", "0.2"))
    assert (row.difference, row.difference_text) == (0.1, "+0.1 (+100 %)")
    same = {row.key: row.shown[0] for row in compared.rows if row.section == "recipe" and row.is_same}
    assert same == {"function": "project.steps:make", "artifact_type": "marin.Artifact"}


def test_dependencies_are_compared_by_version_in_the_recipe_and_by_build_in_the_inputs():
    one, other = (step("a", step(f"raw@{version}")) for version in ("2026.07.01", "2026.07.02"))
    a, b = record(made(one)), record(made(other, used="b2"))
    assert differing(a, b, "recipe")["deps.raw"] == ("2026.07.01", "2026.07.02")
    assert differing(a, b, "inputs") == {"raw": ("2026.07.01 (build b1)", "2026.07.02 (build b2)")}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (1, 2, "+1 (+100 %)"),
        (2.5, 2.0, "-0.5 (-20 %)"),
        (0, 5, "+5"),
        (-4, -2, "+2 (+50 %)"),
        (1_000_000, 3_000_000, "+2,000,000 (+200 %)"),
        (1, 1.0, ""),
        (1, True, ""),
        (1, "1", ""),
        (None, 3, ""),
        ("a", "b", ""),
    ],
)
def test_result_fields_are_compared_typed_and_numbers_with_the_difference(old: Any, new: Any, told: str):
    a, b = (record(build(result={"value": value, "same": 1})) for value in (old, new))
    (row,) = (row for row in compare_records(a, b, NAMES).differing if row.section == "result")
    assert (row.key, row.a, row.b, row.difference_text) == ("value", old, new, told)


def test_a_field_that_one_side_does_not_have_is_absent_and_not_null():
    a, b = record(build(result={"gone": None})), record(build(result={"come": None}))
    assert differing(a, b, "result") == {"gone": (None, ABSENT), "come": (ABSENT, None)}


def test_nested_results_are_compared_leaf_by_leaf():
    a = record(build(result={"losses": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}]}))
    b = record(build(result={"losses": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.3}, {"step": 3}]}))
    assert differing(a, b, "result") == {"losses[1].loss": (0.4, 0.3), "losses[2].step": (ABSENT, 3)}


def test_provenance_is_compared_down_to_each_package():
    a = record(build(provenance={"git": {"commit": "aa"}, "packages": {"jax": "1"}, "command": ["python", "a b.py"]}))
    b = record(build(provenance={"git": {"commit": "bb"}, "packages": {"jax": "2"}, "command": ["python", "c.py"]}))
    assert differing(a, b, "provenance") == {
        "git.commit": ("aa", "bb"),
        "packages.jax": ("1", "2"),
        "command": ("python 'a b.py'", "python c.py"),
    }


def test_recorded_code_is_compared_by_definition_and_package():
    def with_code(digest: str, version: str) -> dict[str, Any]:
        whole = record(build())
        modules = {"helpers": {"file": "helpers.py", "definitions": {"clean": f"function:{digest}"}}}
        whole["build"]["code"] = {"scheme": 1, "modules": modules, "distributions": {"regex": version}}
        return whole

    assert differing(with_code("aa", "1"), with_code("bb", "2"), "code") == {
        "helpers.clean": ("function:aa", "function:bb"),
        "package regex": ("1", "2"),
    }


def test_what_a_newer_marin_has_recorded_is_compared_too():
    a, b = record(build()), record(build())
    b["build"]["energy"] = {"joules": 5}
    assert differing(a, b, "other") == {"energy.joules": (ABSENT, 5)}


def test_an_old_record_without_many_fields_is_compared_as_far_as_it_goes():
    old = {"schema": 1, "name": "a", "version": "dev", "state": "built", "build": {"build_id": "b0"}}
    compared = compare_records(old, record(build()), NAMES)
    assert compared.notes == ("a@dev keeps no recipe, only its fingerprint",)
    assert ("lines", ABSENT, 7) in [(row.key, row.a, row.b) for row in compared.rows]


def test_an_attempt_is_compared_with_a_build_as_far_as_its_record_goes():
    bad = record(attempt=attempt(error="ValueError: no", fingerprint_digest="1" * 64))
    good = record(build())
    compared = compare_records(bad, good, NAMES)
    assert compared.notes == ("a@dev keeps no recipe, only its fingerprint, it is failed",)
    assert differing(bad, good, "artifact")["attempt.error"] == ("ValueError: no", ABSENT)
    assert differing(bad, good, "recipe")["fingerprint"][0] == "1:" + "1" * 64
    assert compare_records(record(attempt=attempt()), record(attempt=attempt()), NAMES).differing == ()


def test_recipes_of_different_schemes_are_not_compared():
    one, other = recipe(lr=0.1), recipe(lr=0.2)
    other = RecordedFingerprint(scheme=2, digest=other.digest, payload=other.payload)
    compared = compare_records(record(build(fingerprint=one)), record(build(fingerprint=other)), NAMES)
    assert compared.notes == ("the fingerprints have different schemes: the recipes are not compared",)


def test_recipes_that_differ_in_a_secret_only_say_so():
    one = recipe()
    other = RecordedFingerprint(scheme=1, digest="2" * 64, payload=one.payload)
    compared = compare_records(record(build(fingerprint=one)), record(build(fingerprint=other)), NAMES)
    assert compared.notes == ("the recipes differ in a secret, which is not shown",)


@pytest.mark.parametrize("part", ["build", "fingerprint", "provenance", "result", "deps", "code", "command"])
@pytest.mark.parametrize("odd", [None, [], {}, "text", 7, [{}], {"float": "x"}])
def test_a_part_of_another_shape_than_ours_ends_nothing(part: str, odd: Any):
    whole = record(build(provenance={"command": ["x"]}))
    other = json.loads(json.dumps(whole))
    place = {"build": other, "command": other["build"]["provenance"]}.get(part, other["build"])
    place[part] = odd
    compare_records(whole, other, NAMES)
    compare_records(other, whole, NAMES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
RESULTS = st.dictionaries(st.text(max_size=4), JSON, max_size=4)


@given(RESULTS, RESULTS)
def test_two_results_have_a_differing_row_exactly_if_their_json_differs(one: Any, other: Any):
    rows = [
        row
        for row in compare_records(record(build(result=one)), record(build(result=other)), NAMES).rows
        if row.section == "result"
    ]
    is_equal = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert all(row.is_same for row in rows) == is_equal
    assert len({row.key for row in rows}) == len(rows)


@given(RESULTS)
def test_leaves_have_paths_of_their_own_and_lose_no_value(result: Any):
    def count(value: Any) -> int:
        if isinstance(value, dict | list) and value:
            return sum(count(inner) for inner in (value.values() if isinstance(value, dict) else value))
        return 1

    assert len(leaves(result)) == (count(result) if result else 0)


def test_a_very_deep_result_is_taken_apart():
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    assert list(leaves({"deep": deep}).values()) == [1]


def test_the_sections_are_told_in_a_fixed_order():
    assert SECTIONS[0] == "artifact"
    assert Row(section="data", key="bytes", a=1, b=3, shown=("1", "3")).difference == 2
