import math

import pytest

from marin.errors import ConfigurationError
from marin.execution.fingerprint import encode
from marin.training.checkpoint_policy import CheckpointPolicy


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seconds": -1}, r"seconds=-1 is not a finite number of seconds, zero or more"),
        ({"seconds": math.inf}, r"seconds=inf is not a finite"),
        ({"seconds": math.nan}, r"seconds=nan is not a finite"),
        ({"seconds": True}, r"seconds=True is not a finite"),
        ({"seconds": "300"}, r"seconds='300' is not a finite"),
        ({"keep": 0}, r"keep=0 is not a whole number, one or more"),
        ({"keep": 1.0}, r"keep=1.0 is not a whole number"),
        ({"keep": True}, r"keep=True is not a whole number"),
        ({"every": 0}, r"every=0 is not a positive number of steps, or None"),
        ({"every": 0.5}, r"every=0.5 is not a positive number of steps"),
        ({"every": 10, "keep_permanent": 0}, r"keep_permanent=0 is not a whole number, one or more, or None for all"),
        ({"keep_permanent": 3}, r"keep_permanent=3, but without every= .*: give every=1000, or leave"),
    ],
)
def test_a_policy_that_makes_no_sense_is_told(fields, message):
    with pytest.raises(ConfigurationError, match=message):
        CheckpointPolicy(**fields)


def test_permanent_ones_are_at_multiples_and_never_at_step_0():
    policy = CheckpointPolicy(every=10)
    assert [step for step in range(31) if policy.is_permanent(step)] == [10, 20, 30]
    assert list(policy.permanent_steps(30)) == [10, 20, 30]
    assert list(policy.permanent_steps(9)) == []
    assert not CheckpointPolicy().permanent_steps(10**9)
    assert len(CheckpointPolicy(every=1).permanent_steps(10**12)) == 10**12
    assert list(CheckpointPolicy(every=1, keep_permanent=2).permanent_steps(10**12)) == [10**12 - 1, 10**12]
    assert not CheckpointPolicy().is_permanent(10)


def test_it_can_be_part_of_a_config():
    assert encode(CheckpointPolicy(), "policy") != encode(CheckpointPolicy(keep=3), "policy")
