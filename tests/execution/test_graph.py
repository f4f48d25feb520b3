import re
import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import ConflictingRecipesError, CycleError, MutableDependencyError, NestedArtifactError
from marin.execution.graph import lower
from marin.execution.lazy import ArtifactStep
from tests.execution.pipelines import poems, report


def step(name, *deps, version="2026.07.01", **more):
    return ArtifactStep(name=name, version=version, run="my_project.poems:write", deps=deps, **more)


@st.composite
def pipelines(draw):
    made = []
    for number in range(draw(st.integers(1, 10))):
        deps = draw(st.lists(st.sampled_from(made), unique=True, max_size=3)) if made else []
        made.append(step(f"s{number}", *deps))
    return made


@given(pipelines(), st.data())
def test_every_step_comes_after_its_dependencies_and_none_is_left_out(made, data):
    targets = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
    graph = lower(*targets)
    order = list(graph.steps)
    for id_, deps in graph.deps.items():
        assert all(order.index(dep) < order.index(id_) for dep in deps)
    reachable, stack = set(), list(targets)
    while stack:
        handle = stack.pop()
        if handle.id not in reachable:
            reachable.add(handle.id)
            stack.extend(handle.deps)
    assert set(order) == reachable
    assert graph.targets == tuple(dict.fromkeys(target.id for target in targets))


def test_lowering_nothing_is_an_empty_graph():
    assert lower().steps == {}


def test_a_cycle_is_named_as_a_path():
    # Handles are immutable, so a circle can only close by name.
    inner = step("a", step("x"))
    circle = step("a", step("b", step("c", inner)))
    with pytest.raises(CycleError, match=re.escape("a@2026.07.01 → b@2026.07.01 → c@2026.07.01 → a@2026.07.01")):
        lower(circle)


def test_a_step_that_depends_on_its_own_name_is_a_cycle():
    with pytest.raises(CycleError, match=re.escape("a@2026.07.01 → a@2026.07.01")):
        lower(step("a", step("a")))


def test_a_chain_of_a_hundred_thousand_lowers():
    handle = None
    for number in range(100_000):
        handle = step(f"s{number}", *([handle] if handle else []))
    assert len(lower(handle).steps) == 100_000


def test_a_fixed_version_on_a_mutable_one_names_both_and_the_ways_out():
    source = poems("anna-dev")
    with pytest.raises(MutableDependencyError) as caught:
        lower(report(source))
    message = str(caught.value)
    assert "reports/words@2026.07.01 has a fixed version but depends on raw/poems@anna-dev" in message
    assert source.made_at in message
    assert "Give raw/poems a fixed version, or build reports/words under 'dev' as well" in message


def test_a_mutable_version_on_a_fixed_one_is_fine():
    lower(report(poems(), "dev"))


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"word": "tulip"}, "config[\"word\"]: 'rose' → 'tulip'"),
        ({"runtime_args": {"device": "tpu"}}, "runtime_args.device: None → 'tpu'"),
        ({"pin": "/elsewhere"}, "pin: None → /elsewhere"),
        ({"expected_fingerprint": "1:abcd1234"}, "expected_fingerprint: None → 1:abcd1234"),
    ],
)
def test_another_recipe_under_one_version_is_refused_with_the_difference(other, difference):
    with pytest.raises(ConflictingRecipesError) as caught:
        lower(poems(), poems(**other))
    assert difference in str(caught.value)
    assert str(caught.value).count("pipelines.py") == 2


def test_equal_recipes_are_one_step_whatever_their_closures():
    assert len(lower(poems(), poems(), report(poems())).steps) == 2


def test_a_step_inside_the_folder_of_another_is_refused():
    with pytest.raises(NestedArtifactError, match=r"x/my-dev/y@2026\.07\.01 would lie inside the folder of x@my-dev"):
        lower(step("x", version="my-dev"), step("x/my-dev/y"))


def test_a_dependency_that_is_only_replaced_stays_itself():
    one = poems()
    assert len(lower(one, replace(one)).steps) == 1


def test_the_difference_of_two_recipes_shows_no_secrets():
    def made(secret):
        return step(
            "raw/poems",
            build_config=lambda ctx: {"api_key": secret, "url": f"https://anna:{secret}@host/"},
            runtime_args={"password": secret, "url": [f"https://anna:{secret}@host/"]},
        )

    with pytest.raises(ConflictingRecipesError, match="a secret, which is not shown") as conflict:
        lower(made("rose-1"), made("lily-2"))
    assert "rose-1" not in str(conflict.value)
    assert "lily-2" not in str(conflict.value)


def test_the_work_to_fingerprint_grows_with_the_number_of_dependencies_and_not_with_its_square():
    def calls(count):
        deps = [step(f"s{number}") for number in range(count)]
        top = step("top", *deps, build_config=lambda ctx: [ctx.artifact_path(dep) for dep in deps])
        made = Counter()
        sys.setprofile(lambda frame, event, argument: made.update([event]))
        try:
            top.fingerprint()
        finally:
            sys.setprofile(None)
        return made["call"]

    assert calls(1000) < 15 * calls(100)  # 10 times, were it exact; 100 times, were it the square
