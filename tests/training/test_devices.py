from __future__ import annotations

import pytest

from marin.executors.devices import GPUS_VARIABLE
from marin.executors.resources import Device
from marin.training.devices import position


@pytest.mark.parametrize(
    ("given", "device", "expected"),
    [
        (None, Device("cuda", 1), 1),
        ("1", Device("cuda", 1), 0),
        ("0,3", Device("cuda", 3), 1),
        ("3", Device("cuda"), 0),
        ("3", Device("cpu", 0), 0),
    ],
)
def test_a_step_finds_the_gpu_that_its_run_has_given_it(monkeypatch, given, device, expected):
    if given is None:
        monkeypatch.delenv(GPUS_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(GPUS_VARIABLE, given)
    assert position(device) == expected
