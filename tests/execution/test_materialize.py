import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.errors import (
    ConfigurationError,
    FingerprintError,
    ImpureConfigError,
    PlaceholderError,
    UndeclaredDependencyError,
)
from marin.execution import OUT, Artifact, ArtifactStep, RunOptions, apply, materialized_config, resolve
from marin.experiment.data import tokenized, train_lm
from marin.experiment.models import llama_nano
from tests.execution.pipelines import Poems, poems, report

FIXED = "2026.07.01"


@dataclass(frozen=True)
class Config:
    output_path: str
    text: str
    lines: Any
    device: str


@dataclass(frozen=True)
class Positive(Artifact):
    lines: int

    def __post_init__(self):
        assert self.lines > 0


def count(config):
    pass


def test_the_config_is_that_of_the_step_function_with_paths_that_are_the_same_everywhere():
    source = poems()

    def build_config(ctx):
        return Config(
            output_path=ctx.output_path,
            text=ctx.artifact_path(source) / "poems.txt",
            lines=ctx.resolved(source).lines,
            device=ctx.runtime_arg("device"),
        )

    step = ArtifactStep(
        name="counts",
        version=FIXED,
        run=count,
        deps=(source,),
        build_config=build_config,
        runtime_args={"device": "tpu"},
    )
    assert materialized_config(step) == Config(
        output_path="/store/counts/2026.07.01",
        text="/store/raw/poems/2026.07.01/poems.txt",
        lines="<raw/poems@2026.07.01.lines>",
        device="tpu",
    )
    assert json.dumps(asdict(materialized_config(step, prefix="s3://b/")), default=str).count("s3://b/") == 2


def test_a_typed_artifact_is_of_its_class_whatever_that_checks():
    source = ArtifactStep(name="raw/x", version=FIXED, run="m:f", artifact_type=Positive)
    step = apply("x", count, config=[source, OUT])
    artifact, out = materialized_config(step)["config"]
    assert (type(artifact), artifact.path, out) == (Positive, "/store/raw/x/2026.07.01", "/store/x/dev")


def test_it_has_the_shape_of_what_a_run_passes(tmp_path):
    kept = apply("x", keep, value={"poems": (poems(), 1), "out": OUT / "a", "rate": 0.5})
    resolve_quietly(kept, tmp_path)
    ran, shown = KEPT[-1], materialized_config(kept)["value"]
    assert ran.keys() == shown.keys()
    assert (type(ran["poems"][0]), type(ran["out"])) == (type(shown["poems"][0]), type(shown["out"]))
    assert (ran["poems"][1], ran["rate"]) == (shown["poems"][1], shown["rate"])


KEPT: list[Any] = []


def keep(value):
    KEPT.append(value)


def resolve_quietly(step, folder):
    return resolve(step, options=RunOptions(prefix=str(folder / "store"), durable=False))


def test_adopted_and_pinned_data_lies_where_its_handle_says():
    adopted = ArtifactStep.adopt(name="a", version=FIXED, source="gs://bucket/a/", kind=Artifact)
    pinned = ArtifactStep(name="b", version=FIXED, pin="/data/b", artifact_type=Poems)
    step = apply("x", count, config=[adopted, pinned])
    assert [artifact.path for artifact in materialized_config(step)["config"]] == ["gs://bucket/a/", "/data/b"]
    with pytest.raises(ConfigurationError, match="no step function that could get a config"):
        materialized_config(adopted)


def test_a_step_without_config_gets_an_empty_one():
    assert materialized_config(ArtifactStep(name="x", run=count)) == {}
    assert materialized_config(ArtifactStep(name="x", run=count, build_config=lambda ctx: None)) == {}


def test_what_a_run_would_refuse_is_refused():
    numbers = iter(range(10))
    for build_config, error in (
        (lambda ctx: {"out": ctx.output_path + "/a"}, PlaceholderError),
        (lambda ctx: {"n": next(numbers)}, ImpureConfigError),
        (lambda ctx: {"poems": ctx.artifact_path(poems())}, UndeclaredDependencyError),
        (lambda ctx: {"x": object()}, FingerprintError),
    ):
        with pytest.raises(error):
            materialized_config(ArtifactStep(name="x", run=count, build_config=build_config))


def test_nothing_is_built_or_read(tmp_path, monkeypatch, built):
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "store"))
    materialized_config(report(poems()))
    assert (built, list(tmp_path.iterdir())) == ([], [])


def test_the_builders_of_marin_have_such_configs():
    tokens = tokenized("tokens/poems", source="poems.jsonl", tokenizer="bytes", version=FIXED)
    model = train_lm(name="poet", version=FIXED, model=llama_nano, datasets={tokens: 1.0}, num_train_steps=2)
    shown = repr(materialized_config(model))
    assert "/store/tokens/poems/2026.07.01" in shown
    assert "/store/poet/2026.07.01" in shown
    assert "\0" not in shown
    assert str(Path.cwd()) not in shown
