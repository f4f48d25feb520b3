import dataclasses
import json
from dataclasses import dataclass
from typing import ClassVar

import pytest

from marin.errors import ConfigurationError
from marin.execution.fingerprint import digest, encode
from marin.training import defaults
from marin.training.optimizers import (
    AdamConfig,
    LionConfig,
    OptimizerConfig,
    SgdConfig,
    filled_in,
    is_optimizer_config,
    learning_rate_text,
)
from marin.training.schedules import learning_rate

CONFIGS = (AdamConfig, LionConfig, SgdConfig)


@dataclass(frozen=True, kw_only=True)
class OwnConfig:
    transformation: ClassVar[str] = "my_project.my_rule:transformation"

    lr: float

    def learning_rate(self, step: int, num_steps: int) -> float:
        return self.lr / (step + 1)


@pytest.mark.parametrize("config", CONFIGS)
def test_the_rate_is_that_of_the_schedule(config):
    options = {"lr": 0.1, "schedule": "cosine", "warmup": 10, "decay": 0.3, "min_lr_ratio": 0.2}
    made = config(**options)
    assert [made.learning_rate(step, 111) for step in range(111)] == [
        learning_rate(step, 111, **options) for step in range(111)
    ]


def test_what_was_recorded_before_options_were_added_does_not_drift():
    encoded = encode(AdamConfig(lr=6e-4), "config")
    assert digest(encoded) == "5a6db17a0f906af68dcbf569394205d7b73eebf518222b4fe46e1c674e534e43", json.dumps(encoded)
    for change in ({"decay": 0.1}, {"decay_embeddings": False}):
        changed = encode(AdamConfig(lr=6e-4, **change), "config")["fields"]
        assert changed.keys() - encoded["fields"].keys() == change.keys()


@pytest.mark.parametrize("config", CONFIGS)
def test_what_the_author_leaves_open_is_in_the_recipe(config):
    stable = config(lr=1.0, schedule="wsd")
    assert filled_in(stable) == config(lr=1.0, schedule="wsd", decay=defaults.WSD_DECAY)
    assert encode(filled_in(stable), "config")["fields"]["decay"] == {"float": "0.2"}
    # Filled in only there: the config itself can be given another schedule.
    assert dataclasses.replace(stable, schedule="constant") == config(lr=1.0, schedule="constant")


def test_nothing_else_is_filled_in():
    for config in (OwnConfig(lr=1.0), AdamConfig(lr=1.0), AdamConfig(lr=1.0, schedule="wsd", decay=0.1)):
        assert filled_in(config) is config


def test_an_optimizer_is_told_from_other_things():
    assert all(is_optimizer_config(config(lr=1.0)) for config in (*CONFIGS, OwnConfig))
    no_rate = dataclasses.make_dataclass("NoRate", ["lr"], namespace={"transformation": "a:b"}, frozen=True)
    no_transformation = dataclasses.make_dataclass("NoName", ["lr"], namespace={"learning_rate": lambda *_: 1.0})
    no_dataclass = type("Plain", (), {"transformation": "a:b", "learning_rate": lambda *_: 1.0})
    for other in (1e-3, None, AdamConfig, OwnConfig, no_rate(lr=1.0), no_transformation(lr=1.0), no_dataclass()):
        assert not is_optimizer_config(other)
    assert isinstance(OwnConfig(lr=1.0), OptimizerConfig)


def test_the_line_about_the_learning_rate():
    assert learning_rate_text(AdamConfig(lr=3e-3, warmup=100), 2000) == (
        "learning rate 0.003, 0.0003 at the last step; cosine: 100 steps of warm-up, 1 at the peak, 1,899 of decay"
    )
    assert learning_rate_text(OwnConfig(lr=1.0), 100) == "learning rate 1 at the first step, 0.01 at the last"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0}, "lr=0 is not a positive number"),
        ({"lr": float("nan")}, "lr=nan is not a positive number"),
        ({"lr": 1e39}, r"lr=1e\+39 is not a positive number"),
        ({"lr": 10**400}, r"lr=10+ is not a positive number"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 is not zero or more"),
        ({"weight_decay": 1e300}, r"weight_decay=1e\+300 is not zero or more, in float32"),
        ({"decay_embeddings": 1}, "decay_embeddings=1 is not True or False"),
        ({"clip_norm": 0}, "clip_norm=0 is not a positive number, or None"),
        ({"clip_norm": "1"}, "clip_norm='1' is not a positive number, or None"),
        ({"clip_norm": True}, "clip_norm=True is not a positive number, or None"),
        ({"schedule": "cosinus"}, "schedule='cosinus' is not one of constant, linear, cosine, wsd, inv_sqrt"),
        ({"schedule": ["cosine"]}, r"schedule=\['cosine'\] is not one of"),
        ({"warmup": 1.5}, r"warmup=1.5 is not a number of steps \(3\) or a part of all steps"),
        ({"warmup": True}, r"warmup=True is not a number of steps"),
        ({"warmup": float("nan")}, r"warmup=nan is not a number of steps"),
        ({"decay": 0}, r"decay=0 is not a number of steps \(300\) or a part of all steps \(0.2\), or None"),
        ({"decay": 1.0}, r"decay=1.0 is not a number of steps"),
        ({"decay": "0.2"}, r"decay='0.2' is not a number of steps"),
        ({"schedule": "constant", "decay": 0.2}, "decay=0.2, but schedule='constant' has no decay: take 'wsd'"),
        ({"warmup": 0.3, "decay": 0.71}, "warmup=0.3 and decay=0.71 are together more than all steps: shorten one"),
        ({"min_lr_ratio": 2}, "min_lr_ratio=2 is not between 0 and 1"),
        ({"min_lr_ratio": "0.1"}, "min_lr_ratio='0.1' is not between 0 and 1"),
    ],
)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_value_that_makes_no_sense_is_told_at_construction(config, change, message):
    with pytest.raises(ConfigurationError, match=f"{config.__name__}: {message}"):
        config(**{"lr": 1e-3, **change})


@pytest.mark.parametrize("config", [AdamConfig, LionConfig])
@pytest.mark.parametrize(
    "betas", [(0.9, 1.0), 0.9, ("0.9", "0.95"), [0.9, 0.95], (0.9,), (-0.1, 0.9), (0.9, 0.99999999), (True, 0.9)]
)
def test_betas_are_two_numbers_below_one(config, betas):
    with pytest.raises(ConfigurationError, match=r"betas=.* is not two numbers in \[0, 1\), as a tuple"):
        config(lr=1e-3, betas=betas)


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (AdamConfig, {"eps": 1e-50}, "eps=1e-50 is not a positive number"),
        (SgdConfig, {"momentum": 1.0}, r"momentum=1.0 is not a number in \[0, 1\)"),
        (SgdConfig, {"momentum": None}, r"momentum=None is not a number in \[0, 1\)"),
        (SgdConfig, {"momentum": 0, "nesterov": True}, "nesterov=True is not False, or True with a momentum above 0"),
        (SgdConfig, {"nesterov": 1}, "nesterov=1 is not False, or True"),
    ],
)
def test_and_so_is_one_of_the_optimizers_own(config, change, message):
    with pytest.raises(ConfigurationError, match=f"{config.__name__}: {message}"):
        config(lr=1e-3, **change)


def test_values_at_the_edge_are_taken():
    AdamConfig(lr=1, weight_decay=0, warmup=0.3, decay=0.7, betas=(0.0, 0.0), min_lr_ratio=1)
    AdamConfig(lr=1e-3, schedule="wsd", warmup=10**9, decay=10**9)  # how long the training is, is not known yet
    SgdConfig(lr=0.1, momentum=0, schedule="inv_sqrt", warmup=0, decay=0.999)
