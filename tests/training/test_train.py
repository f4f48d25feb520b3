"""``train_lm`` makes a handle: no work, and every mistake that can be told at once is told at once."""

import dataclasses
import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from marin.errors import ConfigurationError, InvalidResourcesError
from marin.execution.artifact import Artifact
from marin.execution.context import RunContext
from marin.execution.lazy import ArtifactStep
from marin.execution.results import to_json
from marin.experiment.models import llama_nano
from marin.processing.mixture.mixture import MixtureStage, mixture
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training import defaults
from marin.training.checkpoint import Checkpoint
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.mesh_config import MeshConfig
from marin.training.optimizers import AdamConfig, LionConfig, SgdConfig
from marin.training.train import DatasetConfig, TrainLmConfig, train_lm
from tests.training.caches import tokenizer_identity


def tokens(name="tokenized/poems"):
    return ArtifactStep(name=name, version="2026.07.01", run="my.tokens:make", artifact_type=TokenizedCache)


def cache():
    return TokenizedCache(
        splits={}, dtype="uint16", vocab_size=50, tokenizer=tokenizer_identity(50), content_sha256="0" * 64
    )


def poet(**changes):
    arguments = {"name": "checkpoints/poet", "version": "2026.07.01", "model": llama_nano, "datasets": {TOKENS: 1.0}}
    return train_lm(**{**arguments, **changes})


TOKENS = tokens()


def config_of(step):
    inputs = {str(dep.id): cache() for dep in step.deps}
    return step.build_config(RunContext(step, output_path="/out", prefix="/", region=None, inputs=inputs))


def test_what_is_left_out_is_filled_in_from_the_defaults():
    assert config_of(train_lm(name="checkpoints/my-run", model=llama_nano, datasets={TOKENS: 1.0})) == TrainLmConfig(
        output_path="/out",
        model=llama_nano,
        datasets=(DatasetConfig(cache=cache(), weight=1.0),),
        validation=None,
        optimizer=AdamConfig(lr=defaults.LEARNING_RATE),
        batch_size=defaults.BATCH_SIZE,
        seq_len=2048,
        num_train_steps=None,
        num_train_epochs=1,
        eval_every=None,
        evals_per_run=defaults.EVALS_PER_RUN,
        seed=0,
        z_loss=0.0,
        precision="float32",
        name="checkpoints/my-run",
        device="cpu",
    )


def test_what_a_schedule_fills_in_is_recorded_too():
    stable = config_of(poet(optimizer=AdamConfig(lr=6e-4, schedule="wsd")))
    assert stable.optimizer == AdamConfig(lr=6e-4, schedule="wsd", decay=defaults.WSD_DECAY)


@dataclass(frozen=True, kw_only=True)
class OwnConfig:
    transformation: ClassVar[str] = "my_project.my_rule:transformation"

    lr: float

    def learning_rate(self, step: int, num_steps: int) -> float:
        return self.lr


@pytest.mark.parametrize("optimizer", [LionConfig(lr=1e-4), SgdConfig(lr=0.1), OwnConfig(lr=1.0)])
def test_other_optimizers_are_taken_and_are_identity(optimizer):
    step = poet(optimizer=optimizer)
    assert config_of(step).optimizer == optimizer
    prints = {poet(optimizer=other).fingerprint().digest for other in (optimizer, replace(optimizer, lr=2.0), None)}
    assert len(prints) == 3


def test_what_is_given_is_taken():
    other = tokens("tokenized/prose")
    step = poet(
        datasets={TOKENS: 3, other: 1},
        validation=other,
        optimizer=AdamConfig(lr=6e-4),
        batch_size=4,
        seq_len=128,
        num_train_steps=100,
        resources="cuda:1",
        precision="bfloat16",
    )
    config = config_of(step)
    assert [dataset.weight for dataset in config.datasets] == [3.0, 1.0]
    assert len(config.validation) == 1
    assert (config.batch_size, config.seq_len, config.num_train_steps, config.num_train_epochs) == (4, 128, 100, None)
    assert (config.device, config.precision) == ("cuda:1", "bfloat16")
    assert step.deps == (TOKENS, other)
    assert step.artifact_type is Checkpoint
    assert step.run.resumable
    assert str(step.run.resources.device) == "cuda:1"


def test_one_cache_alone_is_a_mixture_of_one():
    assert config_of(poet(datasets=TOKENS)) == config_of(poet(datasets={TOKENS: 1.0}))


def test_a_mixture_of_one_stage_is_the_plain_mapping():
    other = tokens("tokenized/prose")
    plain, mixed = {TOKENS: 3, other: 1}, mixture({TOKENS: 3, other: 1})
    assert config_of(poet(datasets=mixed)) == config_of(poet(datasets=plain))
    assert poet(datasets=mixed).fingerprint() == poet(datasets=plain).fingerprint()


def test_stages_and_limits_are_in_the_config_and_in_the_fingerprint():
    other = tokens("tokenized/prose")
    step = poet(
        datasets=mixture({TOKENS: 3}, stages={500: {other: 1}}, max_train_batches={other: 20}, mask_boundaries=True)
    )
    config = config_of(step)
    assert [(each.name, each.weight, each.max_train_batches) for each in config.datasets] == [
        ("tokenized/poems@2026.07.01", 3.0, None),
        ("tokenized/prose@2026.07.01", 0.0, 20),
    ]
    assert config.stages == (MixtureStage(start_step=500, weights=(0.0, 1.0)),)
    assert config.mask_boundaries
    assert step.deps == (TOKENS, other)
    plain = {TOKENS: 3, other: 0}
    fingerprints = {
        poet(datasets=each).fingerprint()
        for each in (
            plain,
            mixture(plain, stages={500: {other: 1}}),
            mixture(plain, max_train_batches={other: 20}),
            mixture(plain, mask_boundaries=True),
        )
    }
    assert len(fingerprints) == 4


def test_the_plain_mapping_has_the_fingerprint_that_it_always_had():
    """If this changes, trainings that were recorded before show drift: say so in CHANGELOG.md."""
    fingerprint = train_lm(
        name="checkpoints/poet", version="2026.07.01", model=llama_nano, datasets={TOKENS: 1.0}, num_train_steps=100
    ).fingerprint()
    assert fingerprint.digest.startswith("db703268e8c8343b")


def test_a_short_model_gets_short_sequences():
    assert config_of(poet(model=dataclasses.replace(llama_nano, max_seq_len=300))).seq_len == 300


def test_without_datasets_the_handle_is_made_and_the_fingerprint_names_what_is_missing():
    step = train_lm(
        name="checkpoints/my-run", version="dev", model=llama_nano, optimizer=AdamConfig(lr=6e-4), num_train_steps=100
    )
    assert step.deps == ()
    with pytest.raises(ConfigurationError, match=r"train_lm\('checkpoints/my-run'\) has no datasets: .*Give datasets="):
        step.fingerprint()
    with pytest.raises(ConfigurationError, match=r"has no datasets"):
        config_of(step)


def test_where_it_runs_changes_no_fingerprint_and_what_it_learns_does():
    assert poet(resources="tpu").fingerprint() == poet().fingerprint()
    assert poet(optimizer=AdamConfig(lr=defaults.LEARNING_RATE)).fingerprint() == poet().fingerprint()
    for change in ({"seed": 1}, {"batch_size": 4}, {"optimizer": AdamConfig(lr=6e-4)}, {"datasets": {TOKENS: 2.0}}):
        assert poet(**change).fingerprint() != poet().fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_train_steps": 10, "num_train_epochs": 1},
            r"num_train_steps=10 and num_train_epochs=1 both set the length",
        ),
        ({"seq_len": 4096}, r"seq_len=4096 is longer than the model takes \(max_seq_len=2048\): shorten seq_len"),
        ({"batch_size": 0}, r"batch_size=0 is not a positive whole number"),
        ({"batch_size": 4.0}, r"batch_size=4.0 is not a positive whole number"),
        ({"num_train_steps": True}, r"num_train_steps=True is not a positive whole number"),
        ({"num_train_epochs": -1}, r"num_train_epochs=-1 is not a positive number"),
        ({"eval_every": 0}, r"eval_every=0 is not a positive whole number"),
        ({"seed": -1}, r"seed=-1 is not a whole number from 0"),
        ({"z_loss": math.nan}, r"z_loss=nan is not a finite number"),
        ({"z_loss": 10**400}, r"z_loss=10+ is not a finite number"),
        ({"num_train_epochs": 10**400}, r"num_train_epochs=10+ is not a positive number"),
        ({"precision": "fp8"}, r"precision='fp8' is not one of float32, bfloat16"),
        ({"optimizer": 1e-3}, r"optimizer=0.001 is no optimizer: write AdamConfig\(lr=...\)"),
        (
            {"model": "llama"},
            r"model='llama' is no model: write LlamaConfig\(...\), take one of marin.experiment.models, or see marin",
        ),
        ({"validation": 5}, r"validation is int: give a token cache, or a list of them"),
        ({"validation": "tokenized/poems"}, r"validation is str: give a token cache, or a list of them"),
        ({"trackers": "tensorboard"}, r"trackers='tensorboard' is no list: write trackers=\["),
        ({"remat": "no"}, r"remat='no' is neither True nor False, nor None"),
        ({"datasets": {}}, r"datasets is empty: give token caches and their weights, \{tokens: 1.0\}"),
        ({"datasets": {TOKENS: 0.0}}, r"the weights of datasets sum to 0"),
        ({"datasets": {TOKENS: -1.0}}, r"the weight of .*tokenized/poems@2026.07.01\) is -1.0: a weight is a finite"),
        ({"datasets": {TOKENS: math.nan}}, r"the weight of .* is nan"),
        ({"datasets": {TOKENS: "1"}}, r"the weight of .* is '1'"),
        ({"datasets": ["tokenized/poems"]}, r"datasets is list: give a token cache, or a mapping"),
        ({"datasets": {"tokenized/poems": 1.0}}, r"datasets has str 'tokenized/poems', which is no token cache"),
        (
            {"validation": ArtifactStep(name="raw/poems", run="my.raw:get", artifact_type=Artifact)},
            r"validation has ArtifactStep\[Artifact\]\(raw/poems@dev\), which is no token cache",
        ),
    ],
)
def test_a_mistake_is_told_when_the_handle_is_made(changes, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        poet(**changes)
    assert str(caught.value).startswith("train_lm('checkpoints/poet'): ")


def test_numbers_of_numpy_are_those_of_python():
    def given(whole, part):
        return {
            "model": replace(llama_nano, num_layers=whole(3), rope_theta=part(500.0)),
            "optimizer": AdamConfig(lr=part(0.5), betas=(part(0.5), 0.75), warmup=whole(3), weight_decay=part(0.25)),
            "batch_size": whole(4),
            "seq_len": whole(64),
            "num_train_epochs": part(0.5),
            "eval_every": whole(5),
            "grad_accumulation": whole(2),
            "max_skipped_steps": whole(3),
            "seed": whole(7),
            "z_loss": part(0.25),
            "mesh": MeshConfig(data=whole(1)),
            "checkpoints": CheckpointPolicy(keep=whole(3), seconds=part(1.5)),
        }

    plain = poet(**given(int, float))
    for whole, part in ((np.int64, np.float64), (np.uint8, np.float32)):
        same = poet(**given(whole, part))
        assert same.fingerprint() == plain.fingerprint()
        assert json.dumps(to_json(config_of(same))) == json.dumps(to_json(config_of(plain)))
    assert poet(num_train_steps=np.int32(9)).fingerprint() == poet(num_train_steps=9).fingerprint()


def test_a_malformed_device_is_told_when_the_handle_is_made():
    with pytest.raises(InvalidResourcesError, match=r"resources='gpu' is not a device: .*write 'cpu', 'cuda'"):
        poet(resources="gpu")


def test_describing_a_training_imports_nothing_heavy():
    heavy = ["jax", "optax", "numpy", "pyarrow", "tokenizers", "safetensors"]
    script = "import sys, marin.training.train, marin.experiment.models\n" + "".join(
        f"assert {name!r} not in sys.modules, {name!r}\n" for name in heavy
    )
    subprocess.run([sys.executable, "-c", script], check=True)
