import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from marin.errors import (
    ConfigurationError,
    FingerprintError,
    ImpureConfigError,
    PlaceholderError,
    UndeclaredDependencyError,
    UndeclaredRuntimeArgumentError,
)
from marin.execution.artifact import Artifact
from marin.execution.fingerprint import absent_means, execution_only
from marin.execution.lazy import ArtifactStep
from marin.execution.recipe import check_pure, recipe_fingerprint, recipe_payload
from marin.execution.remote_function import remote


@dataclass(frozen=True)
class Poems(Artifact):
    lines: int = 0


@dataclass(frozen=True)
class Renamed(Artifact):
    fingerprint_name: ClassVar[str] = "test.Poems"


@dataclass(frozen=True)
class Config:
    output: object
    lr: float = 0.1


class Writer:
    def __init__(self, config):
        pass

    def write(self):
        pass


def write(config):
    return Poems()


def write_again(config):
    return Poems()


poems = ArtifactStep(name="raw/poems", version="2026.07.01", run=write, artifact_type=Poems)


def step(**changes):
    recipe = {"name": "tokens", "version": "2026.07.01", "run": write, "build_config": lambda ctx: {"lr": 0.1}}
    return ArtifactStep(**(recipe | changes))


def same(one, other):
    return recipe_fingerprint(one) == recipe_fingerprint(other)


def test_a_recipe_is_config_function_type_and_dependencies():
    assert recipe_payload(
        step(artifact_type=Poems, deps=(poems,), build_config=lambda ctx: Config(ctx.output_path))
    ) == {
        "config": {
            "object": f"{__name__}:Config",
            "fields": {"output": {"placeholder": "output_path"}, "lr": {"float": "0.1"}},
        },
        "function": f"{__name__}:write",
        "artifact_type": f"{__name__}:Poems",
        "deps": ["raw/poems@2026.07.01"],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "elsewhere"},
        {"version": "dev"},
        {"runtime_args": {"device": "cuda:0"}},
        {"expected_fingerprint": "1:abcd1234"},
        {"pin": "/data/x"},
        {"run": remote(write)},
        {"run": remote(write, resources="cuda:0", resumable=True)},
        {"run": f"{__name__}:write"},
        {"run": remote(f"{__name__}:write")},
        {"build_config": lambda ctx: {"lr": 0.2 / 2}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_these_do_not_count(changes):
    assert same(step(), step(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"run": write_again},
        {"run": f"{__name__}:write_again"},
        {"artifact_type": Poems},
        {"deps": (poems,)},
        {"build_config": lambda ctx: {"lr": 1}},
        {"build_config": lambda ctx: {}},
        {"build_config": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_these_do(changes):
    assert not same(step(), step(**changes))


def test_what_comes_from_the_context_does_not_count():
    def recipe(device):
        return step(
            deps=(poems,),
            runtime_args={"device": device},
            build_config=lambda ctx: [ctx.output_path, ctx.prefix, ctx.region, ctx.runtime_arg("device")],
        )

    assert same(recipe("cpu"), recipe("cuda:0"))


def test_a_config_of_none_is_no_config():
    assert same(step(build_config=lambda ctx: None), step(build_config=None))
    assert "config" not in recipe_payload(step(build_config=None))


def test_dependencies_count_once_and_in_any_order():
    other = replace(poems, name="raw/prose")
    assert same(step(deps=(poems, other)), step(deps=(other, poems, poems)))
    assert not same(step(deps=(poems,)), step(deps=(replace(poems, version="2026.07.02"),)))


def test_only_the_id_of_a_dependency_counts_not_its_recipe():
    assert same(step(deps=(poems,)), step(deps=(replace(poems, run=write_again),)))


def test_a_type_with_a_fixed_name_counts_by_it():
    assert recipe_payload(step(artifact_type=Renamed))["artifact_type"] == "test.Poems"
    assert recipe_payload(step())["artifact_type"] == "marin.Artifact"


def test_a_class_as_step_function_is_its_name():
    assert same(step(run=Writer), step(run=f"{__name__}:Writer"))
    assert same(step(run=Writer.write), step(run=f"{__name__}:Writer.write"))


def test_what_a_step_function_was_made_with_counts():
    def writer(times):
        def write_times(config):
            return Poems(times)

        return write_times

    assert same(step(run=writer(1)), step(run=writer(1)))
    assert not same(step(run=writer(1)), step(run=writer(2)))


def test_a_lambda_as_step_function_is_refused():
    with pytest.raises(
        FingerprintError,
        match=r"^tokens@2026\.07\.01 \(made at .*test_recipe\.py:\d+\): function: <lambda at .*module-level",
    ):
        recipe_payload(step(run=lambda config: Poems()))


def test_a_value_without_encoding_is_named_with_step_and_path():
    broken = step(build_config=lambda ctx: {"lock": threading.Lock()})
    with pytest.raises(FingerprintError, match=r"^tokens@2026\.07\.01 .*: config\[\"lock\"\]: _thread\.lock"):
        broken.fingerprint()


def test_a_handle_in_the_config_is_refused_with_the_way_out():
    with pytest.raises(
        FingerprintError, match=r"config\.output: .*raw/poems@2026\.07\.01\) is a handle.*ctx\.artifact_path"
    ):
        step(build_config=lambda ctx: Config(poems)).fingerprint()
    with pytest.raises(FingerprintError, match="is a handle"):
        step(build_config=lambda ctx: {poems: 1.0}).fingerprint()


# Adopted and pinned


def adopted(**changes):
    return ArtifactStep.adopt(
        **({"name": "ext", "version": "2026.07.01", "source": "/data/x", "kind": Poems} | changes)
    )


def test_the_source_of_an_adopted_artifact_counts_and_so_does_what_is_said_of_it():
    assert recipe_payload(adopted()) == {
        "artifact_type": f"{__name__}:Poems",
        "deps": [],
        "source": {"path": "/data/x", "config": {"dict": {}}},
    }
    assert not same(adopted(), adopted(source="/data/y"))
    assert not same(adopted(), adopted(config={"tokenizer": "bytes"}))


def test_a_pinned_handle_has_no_config():
    pinned = ArtifactStep(name="ext", version="2026.07.01", pin="/data/x", artifact_type=Poems)
    assert recipe_payload(pinned) == {"artifact_type": f"{__name__}:Poems", "deps": []}


# Subclasses


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Training(ArtifactStep[Poems]):
    lr: float = 0.1
    tokens: ArtifactStep[Poems] | None = None
    workers: int = field(default=1, metadata=execution_only())
    z_loss: float = field(default=0.0, metadata=absent_means(0.0))
    schedule: Callable[[int], float] | None = None

    def build_config(self, ctx):
        return None


def training(**changes):
    return Training(**({"name": "model", "version": "2026.07.01", "run": write} | changes))


def test_fields_of_a_step_class_count():
    assert recipe_payload(training(tokens=poems))["fields"] == {
        "lr": {"float": "0.1"},
        "tokens": {"handle": "raw/poems@2026.07.01"},
        "schedule": None,
    }
    assert not same(training(), training(lr=0.2))
    assert not same(training(), replace(training(), lr=0.2))


def test_a_field_of_a_step_class_counts_also_if_it_holds_a_function():
    assert not same(training(schedule=abs), training(schedule=round))


def test_methods_and_properties_of_a_step_class_do_not_count():
    class Named(ArtifactStep[Poems]):
        title = "Poems"

        @property
        def shout(self):
            return self.title.upper()

        def whisper(self):
            return self.title.lower()

    assert recipe_payload(Named(name="a", version="dev", run=write))["fields"] == {"title": "Poems"}


def test_what_a_mixin_adds_counts():
    class Mixin:
        title = "Poems"

    class Mixed(Mixin, ArtifactStep[Poems]):
        pass

    assert recipe_payload(Mixed(name="a", version="dev", run=write))["fields"] == {"title": "Poems"}


def test_fields_of_a_step_class_can_be_left_out_as_in_a_config():
    assert same(training(), training(workers=8))
    assert not same(training(), training(z_loss=0.1))


# Errors of build_config


def test_an_error_in_build_config_names_the_step_and_where_it_was_made():
    def broken(ctx):
        return {}["missing"]

    with pytest.raises(
        ConfigurationError,
        match=r"build_config of tokens@2026\.07\.01 \(made at .*test_recipe\.py:\d+\) failed: KeyError: 'mis",
    ) as caught:
        step(build_config=broken).fingerprint()
    assert isinstance(caught.value.__cause__, KeyError)


def test_errors_of_marin_pass_as_they_are():
    with pytest.raises(UndeclaredDependencyError):
        step(build_config=lambda ctx: ctx.artifact_path(poems)).fingerprint()
    with pytest.raises(UndeclaredRuntimeArgumentError):
        step(build_config=lambda ctx: ctx.runtime_arg("device")).fingerprint()
    with pytest.raises(PlaceholderError):
        step(build_config=lambda ctx: ctx.region == "eu").fingerprint()


# Purity


def test_a_pure_build_config_passes():
    check_pure(step(build_config=lambda ctx: {"tags": {"a", "b"}, "output": ctx.output_path, "nan": float("nan")}))


def test_a_build_config_that_changes_by_itself_is_refused_by_path():
    counter = itertools.count()
    impure = step(build_config=lambda ctx: {"seed": next(counter), "lr": 0.1})
    with pytest.raises(
        ImpureConfigError, match=r"tokens@2026\.07\.01 .*two different configs.*\n  config\[\"seed\"\]: 0 → 1\n"
    ):
        check_pure(impure)


def test_a_secret_that_changes_by_itself_is_not_shown():
    counter = itertools.count()
    impure = step(build_config=lambda ctx: {"api_key": f"topsecret-{next(counter)}"})
    with pytest.raises(ImpureConfigError, match="a secret, which is not shown") as fault:
        check_pure(impure)
    assert "topsecret" not in str(fault.value)


@pytest.mark.parametrize(
    "change",
    [os.path.abspath, lambda path: f"/data/{path}", lambda path: Path("/data") / Path(path), Path.absolute],
    ids=["abspath", "text", "joined", "absolute"],
)
def test_a_path_of_the_context_that_was_made_absolute_is_refused(change):
    # It would bring the working folder into the fingerprint.
    def config(ctx):
        return {"to": change(Path(ctx.output_path) if change is Path.absolute else ctx.output_path)}

    handle = ArtifactStep(name="x", version="2026.07.01", run="a:b", build_config=config)
    with pytest.raises(FingerprintError, match=r'config\["to"\].*pass it on as it is'):
        handle.fingerprint()


def test_a_path_of_the_context_may_stand_inside_text():
    def config(ctx):
        return [f"file://{ctx.output_path}", f"--out={ctx.prefix}"]

    assert ArtifactStep(name="x", version="2026.07.01", run="a:b", build_config=config).fingerprint()
