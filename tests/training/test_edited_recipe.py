"""A training that was interrupted, and whose recipe is edited under the same version: never begun anew by itself."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import optax
import pytest

from marin.errors import RunError
from marin.execution import RunOptions, plan, run
from marin.execution.lazy import ArtifactStep
from marin.experiment.data import files, tokenized
from marin.testing.recorder import RecordingReporter
from marin.training.checkpoint import Checkpoint
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.optimizers import AdamConfig
from marin.training.train import train_lm
from tests.training.runs import MODEL, ROOT

VERSION = "2026.07.01"


def training(**changes) -> ArtifactStep[Checkpoint]:
    text = files(str(ROOT / "tests/training/caches.py"), format="text")
    given = {
        "model": MODEL,
        "datasets": tokenized(
            "tokenized/code",
            source=text,
            validation=files(str(ROOT / "tests/training/evaluations.py"), format="text"),
            tokenizer="bytes",
            version=VERSION,
        ),
        "optimizer": AdamConfig(lr=1e-2),
        "batch_size": 2,
        "seq_len": 32,
        "num_train_steps": 20,
        "eval_every": 5,
        "hf_export": None,
        "checkpoints": CheckpointPolicy(every=5),
    }
    return train_lm(name="checkpoints/poet", version=VERSION, **{**given, **changes})


@dataclass(frozen=True, kw_only=True)
class Steady:
    transformation: ClassVar[str] = f"{__name__}:steady"
    lr: float

    def learning_rate(self, step, num_steps):
        return self.lr


@dataclass(frozen=True, kw_only=True)
class Nervous(Steady):
    transformation: ClassVar[str] = f"{__name__}:nervous"


def steady(config):
    return optax.scale_by_adam()


def nervous(config):
    """Keeps what ``steady`` keeps."""
    return optax.scale_by_adam(b1=0.1)


FAILING = {"evals": ("tests.training.evaluations:ends_after_12",)}


def kept(options) -> list[str]:
    """The permanent checkpoints, wherever they lie at the moment."""
    return sorted(path.name for path in Path(options.prefix, "checkpoints/poet").glob("*/**/checkpoints/step-*"))


@pytest.fixture
def options(tmp_path):
    return RunOptions(prefix=str(tmp_path / "store"), durable=False)


@pytest.fixture
def interrupted(options):
    """A training that has failed after step 10."""
    with pytest.raises(RunError, match="I can't judge this"):
        run(training(**FAILING), options=options)
    assert kept(options)[:2] == ["step-000000005", "step-000000010"]
    return options


def test_another_rate_is_refused_with_the_keys_and_costs_nothing(interrupted):
    saved = kept(interrupted)
    edited = training(optimizer=AdamConfig(lr=2e-2))
    assert "or refuses if that does not fit" in plan(edited, options=interrupted).steps[edited.id].reason
    for _ in range(2):
        with pytest.raises(RunError, match=r"other settings: optimizer.lr: 0.01 → 0.02\. Restore .*version of its own"):
            run(edited, options=interrupted)
        assert kept(interrupted) == saved
    told = RecordingReporter()
    (checkpoint,) = run(training(), options=interrupted, reporter=told)
    steps = [row["step"] for row in checkpoint.history() if "loss" in row and "validation_loss" not in row]
    assert steps == list(range(1, 21))
    assert any("goes on from" in note for _, note in told.notes)


def test_another_rule_with_the_same_fields_and_the_same_state_is_refused(options):
    with pytest.raises(RunError, match="I can't judge this"):
        run(training(optimizer=Steady(lr=1e-2), **FAILING), options=options)
    with pytest.raises(RunError, match=r"optimizer\.transformation: '\S+:steady' → '\S+:nervous'"):
        run(training(optimizer=Nervous(lr=1e-2)), options=options)


def test_a_version_of_its_own_is_a_training_of_its_own(interrupted):
    saved = kept(interrupted)
    other = replace(training(optimizer=AdamConfig(lr=2e-2)), version="2026.07.02")
    (checkpoint,) = run(other, options=interrupted)
    assert checkpoint.steps == 20
    assert [name for name in kept(interrupted) if name in saved][: len(saved)]


def test_what_changes_no_update_can_be_changed_on_the_way(interrupted):
    unbroken = replace(training(), name="checkpoints/unbroken")
    (whole,) = run(unbroken, options=interrupted)
    (checkpoint,) = run(training(on_nonfinite="skip", eval_every=4), options=interrupted)
    assert checkpoint.params_sha256 == whole.params_sha256
