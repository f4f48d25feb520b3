"""The whole pipeline in miniature, on a CPU: source text, tokens, a trained checkpoint, its evaluation.

On the way: cache hits, drift, a version bump, ``dev``, adopted data and runtime arguments.
"""

import math
import sysconfig
from pathlib import Path

import pytest

from marin.execution import ArtifactStep, RunOptions, load, plan, resolve
from marin.execution.planning import Decision
from marin.experiment.data import files, tokenized, train_lm, trained_tokenizer
from marin.experiment.models import llama_nano
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.evaluate import evaluate
from marin.training.optimizers import AdamConfig

STDLIB = Path(sysconfig.get_path("stdlib"))
VERSION = "2026.07.01"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A few modules of the standard library, one of them held out."""
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("abc", "argparse", "ast", "bisect", "calendar", "codecs", "copy", "csv", "dataclasses", "enum"):
        folder.joinpath(f"{name}.py").write_text((STDLIB / f"{name}.py").read_text())
    return folder


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return RunOptions(prefix=str(tmp_path_factory.mktemp("store")))


def text(corpus):
    return files(f"{corpus}/*.py", format="text", exclude=f"{corpus}/enum.py")


def tokens(corpus, version=VERSION):
    tokenizer = trained_tokenizer("tokenizers/small", source=text(corpus), vocab_size=512, version=VERSION)
    return tokenized(
        "tokenized/small",
        source=text(corpus),
        validation=files(f"{corpus}/enum.py", format="text"),
        tokenizer=tokenizer,
        version=version,
    )


def model(data, version=VERSION, *, lr=1e-2, resources="cpu", name="checkpoints/nano"):
    return train_lm(
        name=name,
        version=version,
        model=llama_nano,
        datasets={data: 1.0},
        optimizer=AdamConfig(lr=lr),
        batch_size=4,
        seq_len=64,
        num_train_steps=30,
        resources=resources,
    )


def decisions(handle, options):
    return {step.id.name: step.decision for step in plan(handle, options=options).steps.values()}


def test_the_whole_pipeline(corpus, options):
    handle = model(tokens(corpus))
    assert set(decisions(handle, options).values()) == {Decision.BUILD}

    # Source text → tokens → trained checkpoint.
    checkpoint = resolve(handle, options=options)
    before, after = checkpoint.initial_validation, checkpoint.validation
    assert before.loss == pytest.approx(math.log(512), abs=0.3)
    assert after.loss < before.loss - 0.5
    assert after.bits_per_byte < before.bits_per_byte
    assert len([line for line in checkpoint.history() if "loss" in line and "validation_loss" not in line]) == 30

    # Evaluated by itself, it is as good as it was said to be.
    cache = load(tokens(corpus), options=options)
    measured = evaluate(checkpoint, cache, "validation")
    assert measured.loss == pytest.approx(after.loss, abs=1e-5)
    assert measured.bits_per_byte == pytest.approx(after.bits_per_byte, abs=1e-5)

    # Cached: nothing is needed but the checkpoint.
    assert decisions(handle, options)["checkpoints/nano"] is Decision.SERVE
    assert resolve(model(tokens(corpus)), options=options) == checkpoint

    # The device is no identity.
    assert plan(model(tokens(corpus), resources="cuda:0"), options=options).steps[handle.id].changes == ()


def test_drift_is_told_and_a_bump_trains_anew_from_the_same_tokens(corpus, options):
    first = resolve(model(tokens(corpus)), options=options)
    changed = model(tokens(corpus), lr=2e-2)
    planned = plan(changed, options=options).steps[changed.id]
    assert planned.decision is Decision.SERVE
    assert [str(change) for change in planned.changes] == ["config.optimizer.lr: 0.01 → 0.02"]
    assert resolve(changed, options=options) == first

    bumped = model(tokens(corpus), "2026.07.02", lr=2e-2)
    made = plan(bumped, options=options)
    assert [step.id.name for step in made.to_make] == ["checkpoints/nano"]
    second = resolve(bumped, options=options)
    assert second.path != first.path
    assert second.train_loss != first.train_loss


def test_dev_is_built_each_time(corpus, options):
    resolve(tokens(corpus), options=options)
    paths = {resolve(model(tokens(corpus), "dev"), options=options).path for _ in range(2)}
    assert len(paths) == 2


def test_adopted_tokens_train_like_our_own(corpus, options):
    ours = resolve(tokens(corpus), options=options)
    adopted = ArtifactStep.adopt(
        name="tokenized/external", version="2025.12.01", adopt_source=ours.path, kind=TokenizedCache
    )
    one = resolve(model(tokens(corpus)), options=options)
    other = resolve(model(adopted, name="checkpoints/from-external"), options=options)
    assert other.validation == one.validation
    assert load(adopted, options=options).path == ours.path
