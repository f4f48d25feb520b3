"""What is told of the code that a build was made with: which definition changed, in which file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.execution.code_changes import (
    CODE_SCHEME,
    CodeChange,
    CodeChangeKind,
    RecordedCode,
    RecordedModule,
    code_changes,
    distribution_changes,
)
from marin.execution.graph import lower
from marin.execution.plan_text import LISTED_DEFINITIONS, opening_lines, plan_as_json, render_plan
from marin.execution.planning import Observation, make_plan
from marin.execution.record import Record, State
from tests.execution import records
from tests.execution.pipelines import poems

CLEAN = CodeChange(module="pipeline.helpers", name="clean", what="function", file="pipeline/helpers.py")


def code(helpers=None, **more):
    module = RecordedModule(file="pipeline/helpers.py", definitions=helpers or {})
    more = {"scheme": CODE_SCHEME, **more}
    return RecordedCode(modules={"pipeline.helpers": module} if helpers else {}, **more)


def told(old, new):
    return [str(change) for change in code_changes(old, new)]


def test_a_changed_definition_is_named_with_its_file():
    old = code({"clean": "function:1", "Words": "class:1", "LIMIT": "constant:1", "same": "function:1"})
    new = code({"clean": "function:2", "Words": "class:2", "LIMIT": "constant:2", "same": "function:1"})
    assert told(old, new) == [
        "constant helpers.LIMIT (pipeline/helpers.py)",
        "class helpers.Words (pipeline/helpers.py)",
        "helpers.clean (pipeline/helpers.py)",
    ]


def test_what_is_reached_for_the_first_time_and_what_no_longer_is_are_told_as_such():
    assert told(code({"clean": "function:1"}), code({"strip": "function:1"})) == [
        "helpers.clean removed (pipeline/helpers.py)",
        "helpers.strip added (pipeline/helpers.py)",
    ]


def test_a_part_without_source_hides_what_may_be_behind_it():
    readable, unreadable = code({"clean": "function:1"}), code(unknown={"pipeline.helpers": "not Python"})
    assert told(readable, unreadable) == []
    assert told(unreadable, readable) == []


def test_a_part_without_source_hides_no_change_elsewhere():
    more = {"unknown": {"pipeline.fast": "fast.so has no source"}}
    assert told(code({"clean": "function:1"}, **more), code({"clean": "function:2"}, **more)) == [str(CLEAN)]


def test_code_that_was_digested_by_other_rules_is_not_compared():
    assert told(code({"clean": "function:1"}), code({"clean": "function:2"}, scheme=CODE_SCHEME + 1)) == []


def test_an_upgraded_package_is_no_change_of_code_and_can_be_asked_for():
    old = code({"clean": "function:1"}, distributions={"numpy": "2.1.0", "jax": "0.4", "tqdm": "1"})
    new = code({"clean": "function:1"}, distributions={"numpy": "2.1.1", "jax": "0.4", "rich": "2"})
    assert told(old, new) == []
    assert distribution_changes(old, new) == {"numpy": ("2.1.0", "2.1.1"), "rich": (None, "2"), "tqdm": ("1", None)}


OPPOSITE = {CodeChangeKind.ADDED: CodeChangeKind.REMOVED, CodeChangeKind.REMOVED: CodeChangeKind.ADDED}
DEFINITIONS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["function:1", "class:2", "constant:3"]))


@given(DEFINITIONS, DEFINITIONS)
def test_each_difference_is_told_once_and_the_way_back_tells_the_same_names(old, new):
    forth, back = code_changes(code(old), code(new)), code_changes(code(new), code(old))
    assert {change.name for change in forth} == {key for key in old | new if old.get(key) != new.get(key)}
    assert [change.name for change in forth] == [change.name for change in back]
    assert [change.kind for change in forth] == [OPPOSITE.get(change.kind, change.kind) for change in back]


def plan_of(step, changes):
    record = Record(name=step.id.name, version=step.id.version, state=State.BUILT, build=records.build())
    return make_plan(lower(step), {step.id: Observation(record=record, code_changes=changes)})


def test_a_plan_tells_in_one_line_what_changed_and_serves_all_the_same():
    plan = plan_of(poems(), (CLEAN,))
    assert "code changed since it was built: helpers.clean (pipeline/helpers.py)" in render_plan(plan)
    opening = opening_lines(plan, prefix="/s", origin="here", hint=None, width=None)
    assert [line.text for line in opening if "code changed" in line.text] == [
        "note: raw/poems@2026.07.01: code changed since it was built: helpers.clean (pipeline/helpers.py)"
    ]
    step = plan_as_json(plan)["steps"][0]
    assert step["decision"] == "serve"
    assert step["code_changes"] == [
        {
            "module": "pipeline.helpers",
            "name": "clean",
            "what": "function",
            "file": "pipeline/helpers.py",
            "kind": "changed",
            "text": "helpers.clean (pipeline/helpers.py)",
        }
    ]


def test_of_many_changes_the_rest_are_counted():
    names = [f"f{number}" for number in range(LISTED_DEFINITIONS + 2000)]
    text = render_plan(
        plan_of(poems(), tuple(CodeChange(module="m", name=name, what="function", file="m.py") for name in names))
    )
    assert "m.f7 (m.py), and 2,000 more" in text
    assert "m.f8 " not in text


@pytest.mark.parametrize("version", ["dev", "anna-dev"])
def test_of_what_is_rebuilt_anyway_no_change_is_told(version):
    assert plan_of(poems(version), (CLEAN,)).steps[poems(version).id].code_changes == ()
