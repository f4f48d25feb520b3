from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import InvalidResourcesError
from marin.executors.resources import Device, ResourceConfig


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", Device("cpu")),
        ("cuda", Device("cuda")),
        ("cuda:0", Device("cuda", 0)),
        ("cuda:11", Device("cuda", 11)),
        ("tpu", Device("tpu")),
    ],
)
def test_a_device_is_read_and_written_alike(text: str, device: Device):
    assert ResourceConfig.parse(text).device == device
    assert str(device) == text


def test_a_config_is_taken_as_it_is():
    config = ResourceConfig(device=Device("tpu"))
    assert ResourceConfig.parse(config) is config


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gpu", "cuda"),
        ("GPU:1", "cuda:1"),
        ("cuda0", "cuda:0"),
        ("cuda:00", "cuda:0"),
        ("CUDA", "cuda"),
        (" cpu", "cpu"),
        ("nvidia", "cuda"),
        ("cuda:", "cuda"),
        ("tpu-3", "tpu:3"),
    ],
)
def test_a_near_miss_is_refused_with_what_was_meant(text: str, meant: str):
    with pytest.raises(InvalidResourcesError, match=f"did you mean '{meant}'"):
        ResourceConfig.parse(text)


@pytest.mark.parametrize("text", ["", "mps", "cuda:-1", "cuda:0,1", "cpu\nx", "cuda:1.5", "cuda:" + "1" * 5000])
def test_other_text_is_refused_with_the_choices(text: str):
    with pytest.raises(InvalidResourcesError, match="write 'cpu', 'cuda', 'cuda:0' or 'tpu'"):
        ResourceConfig.parse(text)


@pytest.mark.parametrize(("value", "kind"), [(None, "NoneType"), (True, "bool"), (0, "int"), (["cpu"], "list")])
def test_what_is_no_text_is_refused_by_its_type(value: Any, kind: str):
    with pytest.raises(InvalidResourcesError, match=f"is {kind}, not text"):
        ResourceConfig.parse(value)


@given(st.text())
def test_any_text_is_a_device_or_a_clear_error(text: str):
    try:
        device = ResourceConfig.parse(text).device
    except InvalidResourcesError as fault:
        said = str(fault)
    else:
        said = repr(str(device))
    assert repr(text) in said
