"""What type checkers infer of pipelines. Never run: ``tests/test_static.py`` has it checked in strict mode."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_type

from marin.execution import (
    OUT,
    Artifact,
    ArtifactStep,
    StepContext,
    apply,
    load,
    materialized_config,
    remote,
    resolve,
    run,
)
from marin.execution.context import StepPath
from marin.experiment.data import (
    Mixture,
    hf_download,
    interpolated,
    mixture,
    raw_download,
    tokenized,
    train_lm,
    trained_tokenizer,
)
from marin.experiment.models import llama_nano
from marin.processing.download import HubDownload
from marin.processing.raw_download import RawDownload
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.processing.tokenize.tokenizers import TrainedTokenizer
from marin.training.checkpoint import Checkpoint


@dataclass(frozen=True, kw_only=True)
class Poems(Artifact):
    lines: int


@dataclass(frozen=True)
class Config:
    lr: float


def write(text: str, out: str) -> Poems:
    return Poems(lines=text.count(out))


def train(config: Config) -> Checkpoint | None:
    del config
    return None


# The builders

tokens = tokenized("tokenized/poems", source="poems.jsonl", tokenizer="bytes", version="2026.07.01")
model = train_lm(name="checkpoints/poet", model=llama_nano, datasets={tokens: 1.0}, num_train_steps=1)

mixed = mixture({tokens: 3}, stages={100: {tokens: 1}}, max_train_batches={tokens: 9})
staged = train_lm(name="checkpoints/staged", model=llama_nano, datasets=mixed, num_train_steps=1)

assert_type(tokens, ArtifactStep[TokenizedCache])
assert_type(mixed, Mixture)
assert_type(interpolated({tokens: 1}, {tokens: 2.5}, end_step=99), Mixture)
assert_type(staged, ArtifactStep[Checkpoint])
assert_type(resolve(tokens), TokenizedCache)
assert_type(load(tokens), TokenizedCache)
assert_type(resolve(tokenized("t", source="poems.jsonl", tokenizer="bytes")).path, str)
assert_type(resolve(model), Checkpoint)
assert_type(resolve(trained_tokenizer("t", source="poems.jsonl", vocab_size=300)), TrainedTokenizer)
assert_type(resolve(hf_download("raw/x", hf_id="org/name", revision="main")), HubDownload)
assert_type(resolve(raw_download("raw/y", urls="https://host/y.jsonl")), RawDownload)

# Plain functions

poems = apply("raw/poems", write, version="2026.07.01", artifact_type=Poems, text="rose", out=OUT)
elsewhere = apply("raw/poems", remote(write), artifact_type=Poems, text="rose", out=OUT)

assert_type(poems, ArtifactStep[Poems])
assert_type(elsewhere, ArtifactStep[Poems])
assert_type(resolve(poems).lines, int)
assert_type(apply("x", "my.module:write", text="rose"), ArtifactStep[Artifact])
assert_type(replace(poems, version="2026.07.02"), ArtifactStep[Poems])
assert_type(materialized_config(poems), Any)

# Handles of one's own


def build_config(ctx: StepContext) -> Mapping[str, Any]:
    assert_type(ctx.output_path, StepPath)
    assert_type(ctx.output_path / "part", StepPath)
    assert_type(ctx.artifact_path(tokens), StepPath)
    assert_type(ctx.resolved(tokens), TokenizedCache)
    assert_type(ctx.resolved(poems).lines, int)
    assert_type(ctx.region, str | None)
    return {}


step = ArtifactStep(name="x", run=train, artifact_type=Checkpoint, build_config=build_config, deps=(tokens, poems))
assert_type(step, ArtifactStep[Checkpoint])
assert_type(ArtifactStep(name="x", run="my.module:write"), ArtifactStep[Artifact])

adopted = ArtifactStep.adopt(name="tokenized/external", version="2025.12.01", source="/data", kind=TokenizedCache)
assert_type(adopted, ArtifactStep[TokenizedCache])
assert_type(load(adopted), TokenizedCache)

# Subclasses


class Plain(ArtifactStep[Checkpoint]):
    config = Config(lr=6e-4)

    def build_config(self, ctx: StepContext) -> Config:
        return self.config


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Training(ArtifactStep[Checkpoint]):
    lr: float

    def build_config(self, ctx: StepContext) -> Config:
        return Config(lr=self.lr)


assert_type(resolve(Plain(name="x", run=train, artifact_type=Checkpoint)), Checkpoint)
assert_type(resolve(Training(name="x", run=train, artifact_type=Checkpoint, lr=0.1)), Checkpoint)
assert_type(replace(Training(name="x", run=train, artifact_type=Checkpoint, lr=0.1), lr=0.2), Training)

# Several at once

assert_type(run(tokens), tuple[TokenizedCache])
assert_type(run(tokens, model), tuple[TokenizedCache, Checkpoint])
assert_type(run(tokens, model, poems), tuple[TokenizedCache, Checkpoint, Poems])
assert_type(run(tokens, tokens, tokens, model)[3], Checkpoint)
assert_type(run(tokens, tokens, tokens, tokens, poems)[4].lines, int)
sweep = [replace(poems, version=f"2026.07.{day:02}") for day in range(1, 9)]
assert_type(run(*sweep), tuple[Poems, ...])
