"""Names and files that users rely on. A change here is a change for them: tell it in CHANGELOG.md."""

from __future__ import annotations

import dataclasses
import importlib
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import marin.execution
import marin.testing
from marin.errors import ConfigurationError
from marin.execution import Artifact, ArtifactStep, RunOptions, load, lower, plan, resolve
from marin.experiment.data import files, tokenized, train_lm
from marin.experiment.models import llama_nano
from marin.experiment.tokenizers import marin_tokenizer
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.optimizers import AdamConfig

ROOT = Path(__file__).parents[1]


def test_exports_are_deliberate():
    assert marin.execution.__all__ == [
        "OUT",
        "Artifact",
        "ArtifactId",
        "ArtifactStep",
        "RunOptions",
        "StepContext",
        "VersionCodex",
        "apply",
        "build_context",
        "load",
        "lower",
        "materialized_config",
        "plan",
        "remote",
        "resolve",
        "run",
    ]
    assert marin.testing.__all__ == [
        "FakeClock",
        "RecordingReporter",
        "TemporaryStore",
        "a_step",
        "assert_builds",
        "assert_cached",
        "plan_reasons",
        "temporary_store",
    ]


def test_everything_exported_is_there():
    for module in (
        "marin.execution",
        "marin.experiment.data",
        "marin.experiment.models",
        "marin.experiment.tokenizers",
        "marin.testing",
    ):
        imported = importlib.import_module(module)
        for name in imported.__all__:
            assert getattr(imported, name) is not None, f"{module}.{name}"


def test_no_module_hides_a_function_that_is_exported():
    importlib.import_module("marin.execution.runner")
    for name in ("load", "lower", "plan", "remote", "resolve", "run"):
        assert callable(getattr(marin.execution, name)), name


def test_what_is_not_exported_is_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'marin\.execution' has no attribute 'rum'"):
        _ = marin.execution.rum


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("marin.execution.lazy", "ArtifactStep"),
        ("marin.experiment.data", "tokenized"),
        ("marin.experiment.data", "hf_download"),
        ("marin.experiment.data", "raw_download"),
        ("marin.experiment.data", "train_lm"),
        ("marin.training.train", "train_lm"),
        ("marin.processing.tokenize.tokenize", "TokenizedCache"),
        ("marin.experiment.tokenizers", "marin_tokenizer"),
        ("marin.experiment.models", "llama_nano"),
        ("marin.training.optimizers", "AdamConfig"),
        ("marin.training.optimizers", "LionConfig"),
        ("marin.training.optimizers", "SgdConfig"),
    ],
)
def test_documented_imports_exist(module, name):
    assert hasattr(importlib.import_module(module), name)


def test_helpers_have_one_home():
    data = importlib.import_module("marin.experiment.data")
    train = importlib.import_module("marin.training.train")
    assert data.train_lm is train.train_lm


@pytest.mark.parametrize(
    "path",
    ["tests/integration_test.py", "docs/explanations/lazy-artifacts.md", "docs/dev-guide/coding-standards.md"],
)
def test_documented_files_exist(path):
    assert (ROOT / path).is_file()


# The snippets of the specification, as they are printed there: text, so that not a character is ours.

TOKENS_AND_MODEL = """
from marin.experiment.data import tokenized
from marin.training.train import train_lm

# Create a lazy handle to tokenized data (no work performed yet)

tinystories = tokenized(
    name="tokenized/tinystories",
    source="roneneldan/TinyStories",
    tokenizer=marin_tokenizer,
    version="2026.07.01",  # Bump to force re-tokenization

)

# Declare a training step that depends on the tokenized data

model_ckpt = train_lm(
    name="checkpoints/my-run",
    model=llama_nano,
    datasets={tinystories: 1.0},
    batch_size=4,
    seq_len=2048,
)
"""

DEVELOPMENT_RUN = """
# Always rebuild during development

model_ckpt = train_lm(
    name="checkpoints/my-run",
    version="dev",  # Triggers fresh execution every time

    model=llama_nano,
    optimizer=AdamConfig(lr=6e-4),
    num_train_steps=100,
)
"""

ADOPTION = """
from marin.execution.lazy import ArtifactStep
from marin.processing.tokenize.tokenize import TokenizedCache

external = ArtifactStep.adopt(
    name="tokenized/external",
    version="2025.12.01",
    adopt_source="gs://my-bucket/tokenized/external/",
    kind=TokenizedCache,
)

# Now `external` can be used as a normal dependency in other steps
"""

BUILD_CONFIG = """
def build_config(self, ctx):
    # Runtime argument: excluded from fingerprint

    device = ctx.runtime_arg("device")  # e.g., "cuda:0" or "tpu"

    
    # Build-time argument: included in fingerprint

    learning_rate = self.config.lr
"""  # noqa: W293  # as printed


def _names() -> dict[str, Any]:
    """What the snippets use and do not define."""
    return {
        "marin_tokenizer": marin_tokenizer,
        "llama_nano": llama_nano,
        "AdamConfig": AdamConfig,
        "train_lm": train_lm,
    }


def test_the_printed_pipeline_makes_handles():
    names = _names()
    exec(TOKENS_AND_MODEL, names)
    graph = lower(names["model_ckpt"])
    assert [str(id_) for id_ in graph.steps] == ["tokenized/tinystories@2026.07.01", "checkpoints/my-run@dev"]
    assert names["tinystories"].artifact_type is TokenizedCache


def test_the_printed_development_run_can_be_made_and_is_refused_where_it_would_run(tmp_path):
    names = _names()
    exec(DEVELOPMENT_RUN, names)
    assert str(names["model_ckpt"].id) == "checkpoints/my-run@dev"
    with pytest.raises(ConfigurationError, match=r"train_lm\('checkpoints/my-run'\) has no datasets"):
        plan(names["model_ckpt"], options=RunOptions(prefix=str(tmp_path)))


def test_the_printed_adoption_is_a_dependency_like_any_other():
    names = _names()
    exec(ADOPTION, names)
    model = train_lm(
        name="checkpoints/adopted", version="2026.07.01", model=llama_nano, datasets={names["external"]: 1.0}
    )
    assert [str(id_) for id_ in lower(model).steps] == [
        "tokenized/external@2025.12.01",
        "checkpoints/adopted@2026.07.01",
    ]
    same = ArtifactStep.adopt(
        name="tokenized/external",
        version="2025.12.01",
        source="gs://my-bucket/tokenized/external/",
        kind=TokenizedCache,
    )
    assert same.fingerprint() == names["external"].fingerprint()


def test_the_printed_build_config_is_a_method_of_a_subclass(tmp_path):
    names = _names() | {"ArtifactStep": ArtifactStep, "dataclass": dataclass, "__name__": __name__}
    body = f"    config: AdamConfig\n{textwrap.indent(BUILD_CONFIG, '    ')}        return learning_rate, device\n"
    exec(f"@dataclass(frozen=True, eq=False, kw_only=True, repr=False)\nclass Train(ArtifactStep):\n{body}", names)
    step = names["Train"](
        name="checkpoints/printed", run=_write_config, config=AdamConfig(lr=6e-4), runtime_args={"device": "cpu"}
    )
    warmer = dataclasses.replace(step, config=dataclasses.replace(step.config, lr=1e-3))
    elsewhere = dataclasses.replace(step, runtime_args={"device": "cuda:0"})
    assert warmer.fingerprint() != step.fingerprint()
    assert elsewhere.fingerprint() == step.fingerprint()
    CONFIGS.clear()
    resolve(warmer, options=RunOptions(prefix=str(tmp_path), durable=False))
    assert CONFIGS == [(1e-3, "cpu")]


CONFIGS: list[Any] = []


def _write_config(config: Any) -> None:
    CONFIGS.append(config)


def test_replace_makes_another_frozen_config():
    assert dataclasses.replace(AdamConfig(lr=6e-4), lr=8e-4) == AdamConfig(lr=8e-4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        AdamConfig(lr=6e-4).lr = 8e-4


def test_adopted_tokens_are_trained_on_where_they_lie(tmp_path):
    (tmp_path / "poems.txt").write_text("Roses are red, violets are blue.\n" * 200)
    elsewhere = RunOptions(prefix=str(tmp_path / "elsewhere"), durable=False)
    here = RunOptions(prefix=str(tmp_path / "here"), durable=False)
    tokens = resolve(
        tokenized("tokenized/poems", source=files(tmp_path / "poems.txt"), tokenizer="bytes", version="2025.11.30"),
        options=elsewhere,
    )
    external = ArtifactStep.adopt(
        name="tokenized/external", version="2025.12.01", adopt_source=tokens.path, kind=TokenizedCache
    )
    model = train_lm(
        name="checkpoints/poet",
        version="2026.07.01",
        model=llama_nano,
        datasets={external: 1.0},
        optimizer=AdamConfig(lr=6e-4),
        batch_size=2,
        seq_len=32,
        num_train_steps=2,
    )
    trained = resolve(model, options=here)
    assert trained.steps == 2
    assert load(external, options=here).path == tokens.path
    assert isinstance(load(external, options=here), Artifact)
