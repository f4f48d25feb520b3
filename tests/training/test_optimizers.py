import pytest

from marin.errors import ConfigurationError
from marin.training.optimizers import AdamConfig


@pytest.mark.parametrize(
    ("schedule", "at_start", "at_peak", "half_way", "at_end"),
    [
        ("constant", 0.1 / 11, 0.1, 0.1, 0.1),
        ("linear", 0.1 / 11, 0.1, 0.055, 0.01),
        ("cosine", 0.1 / 11, 0.1, 0.055, 0.01),
    ],
)
def test_the_table_of_rates(schedule, at_start, at_peak, half_way, at_end):
    config = AdamConfig(lr=0.1, warmup=10, schedule=schedule, min_lr_ratio=0.1)
    rate = [config.learning_rate(step, num_steps=111) for step in range(111)]
    assert rate[0] == pytest.approx(at_start)
    assert rate[9] == pytest.approx(0.1 * 10 / 11)  # the last step of the warm-up
    assert rate[10] == pytest.approx(at_peak)
    assert rate[60] == pytest.approx(half_way)
    assert rate[110] == pytest.approx(at_end)
    assert rate[:11] == sorted(set(rate[:11]))
    assert rate[10:] == sorted(rate[10:], reverse=True)


def test_warm_up_as_a_part_of_all_steps():
    assert AdamConfig(lr=1.0, warmup=0.1).warmup_steps(200) == 20
    assert AdamConfig(lr=1.0, warmup=0).learning_rate(0, 100) == 1.0
    assert AdamConfig(lr=1.0, warmup=500).warmup_steps(200) == 200


@pytest.mark.parametrize("num_steps", [1, 2, 3])
@pytest.mark.parametrize("warmup", [0, 1, 0.5])
def test_the_shortest_trainings_have_a_rate(num_steps, warmup):
    config = AdamConfig(lr=1.0, warmup=warmup)
    assert all(0 < config.learning_rate(step, num_steps) <= 1 for step in range(num_steps))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0}, "lr=0 is not a positive number"),
        ({"lr": float("nan")}, "lr=nan is not a positive number"),
        ({"betas": (0.9, 1.0)}, r"betas=\(0.9, 1.0\) is not two numbers in \[0, 1\)"),
        ({"weight_decay": -0.1}, "weight_decay=-0.1 is not zero or more"),
        ({"clip_norm": 0}, "clip_norm=0 is not a positive number, or None"),
        ({"schedule": "cosinus"}, "schedule='cosinus' is not one of constant, linear, cosine"),
        ({"warmup": 1.5}, r"warmup=1.5 is not a number of steps \(3\) or a part of all steps"),
        ({"min_lr_ratio": 2}, "min_lr_ratio=2 is not between 0 and 1"),
        ({"min_lr_ratio": "0.1"}, "min_lr_ratio='0.1' is not between 0 and 1"),
        ({"betas": 0.9}, r"betas=0.9 is not two numbers in \[0, 1\)"),
        ({"betas": ("0.9", "0.95")}, r"betas=\('0.9', '0.95'\) is not two numbers"),
        ({"betas": [0.9, 0.95]}, r"betas=\[0.9, 0.95\] is not two numbers in \[0, 1\), as a tuple"),
        ({"clip_norm": "1"}, "clip_norm='1' is not a positive number, or None"),
        ({"clip_norm": True}, "clip_norm=True is not a positive number, or None"),
        ({"lr": 1e39}, r"lr=1e\+39 is not a positive number"),
        ({"eps": 1e-50}, r"eps=1e-50 is not a positive number"),
    ],
)
def test_a_value_that_makes_no_sense_is_told_at_construction(change, message):
    with pytest.raises(ConfigurationError, match=message):
        AdamConfig(**{"lr": 1e-3, **change})
