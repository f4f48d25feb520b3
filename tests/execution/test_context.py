import os
from pathlib import Path

import pytest

from marin.errors import (
    ConfigurationError,
    PlaceholderError,
    UndeclaredDependencyError,
    UndeclaredRuntimeArgumentError,
)
from marin.execution.artifact import Artifact, at_path
from marin.execution.context import PlaceholderContext, RunContext, StepPath
from tests.execution.pipelines import Poems, poems, report

SOURCE = poems()
STEP = report(SOURCE, runtime_args={"device": "cuda:0"})


@pytest.fixture
def ctx():
    return PlaceholderContext(STEP)


def test_paths_can_be_extended_formatted_and_passed_to_os(ctx):
    for path in (ctx.output_path, ctx.prefix, ctx.artifact_path(SOURCE), ctx.resolved(SOURCE).path):
        assert str(path / "a" / "b") == f"{path}/a/b" == os.fspath(path) + "/a/b"
        assert isinstance(Path(path), Path)


COMPUTED = {
    "addition": lambda value: value + 1,
    "multiplication": lambda value: 2 * value,
    "truth": lambda value: bool(value),
    "condition": lambda value: 1 if value else 2,
    "equality": lambda value: value == 3,
    "inequality": lambda value: value != 3,
    "order": lambda value: value < 3,
    "conversion": lambda value: int(value),
    "length": lambda value: len(value),
    "iteration": lambda value: list(value),
    "indexing": lambda value: value[0],
    "membership": lambda value: 1 in value,
    "hashing": lambda value: {value: 1},
    "calling": lambda value: value(),
    "rounding": lambda value: round(value),
    "negation": lambda value: -value,
}


@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
def test_computing_with_what_is_known_only_later_is_refused(ctx, compute):
    for value in (ctx.runtime_arg("device"), ctx.resolved(SOURCE).lines, ctx.region, ctx.resolved(SOURCE)):
        with pytest.raises(PlaceholderError, match="do it in the step function"):
            compute(value)


@pytest.mark.parametrize("compute", [COMPUTED[k] for k in ("addition", "truth", "equality", "length", "hashing")])
def test_computing_with_a_path_is_refused_too(ctx, compute):
    with pytest.raises(PlaceholderError, match="output_path"):
        compute(ctx.output_path)


def test_text_of_a_value_is_refused(ctx):
    with pytest.raises(PlaceholderError, match="runtime_arg:device"):
        f"{ctx.runtime_arg('device')}"


def test_an_undeclared_dependency_is_named_with_the_declared_ones(ctx):
    other = poems(name="raw/other")
    for read in (ctx.artifact_path, ctx.resolved):
        with pytest.raises(UndeclaredDependencyError, match=r"raw/other@2026\.07\.01 .*add it to deps=.*raw/poems"):
            read(other)


def test_an_undeclared_runtime_argument_is_named_with_the_declared_ones(ctx):
    with pytest.raises(UndeclaredRuntimeArgumentError, match=r"'prefix'.*declared: device"):
        ctx.runtime_arg("prefix")


def test_a_run_gets_the_real_values():
    context = RunContext(
        STEP,
        output_path="/store/x",
        prefix="/store",
        region="eu",
        inputs={str(SOURCE.id): at_path(Poems(lines=3), "/store/raw/poems")},
    )
    assert context.output_path / "a" == "/store/x/a"
    assert context.artifact_path(SOURCE) == "/store/raw/poems"
    assert context.resolved(SOURCE) == Poems(lines=3)
    assert context.resolved(SOURCE).path == "/store/raw/poems"
    assert (context.region, context.runtime_arg("device")) == ("eu", "cuda:0")
    with pytest.raises(UndeclaredDependencyError):
        context.artifact_path(poems(name="raw/other"))


def test_a_step_path_is_text_that_can_be_extended():
    assert StepPath("s3://bucket/a/") / "b" == "s3://bucket/a/b"
    assert os.fspath(StepPath("/a")) == "/a"


def test_the_placeholder_contexts_paths_are_not_the_artifacts():
    assert not isinstance(PlaceholderContext(STEP).resolved(SOURCE), Artifact)


@pytest.mark.parametrize("part", ["..", "../x", "a/../../x", "/etc/passwd"])
@pytest.mark.parametrize("path", [StepPath("/store/poems"), PlaceholderContext(poems()).output_path])
def test_a_path_of_the_context_leads_nowhere_else(path, part):
    with pytest.raises(ConfigurationError, match="leads out of its folder"):
        path / part


def test_what_text_can_do_a_path_of_the_context_can_not():
    with pytest.raises(PlaceholderError, match="do it in the step function"):
        PlaceholderContext(poems()).output_path.upper()


def test_a_name_in_place_of_a_handle_is_told():
    with pytest.raises(ConfigurationError, match="give it the handle itself, not its name"):
        PlaceholderContext(report(poems())).artifact_path("raw/poems")
