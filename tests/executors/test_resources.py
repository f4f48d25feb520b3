from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
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


@pytest.mark.parametrize(
    "config",
    [
        ResourceConfig(),
        ResourceConfig(device="cuda:1", cpus=0.5, memory="16GB", disk="1TiB", time="2h"),
        ResourceConfig.with_cpu(8, memory="8GiB"),
        ResourceConfig.with_gpu("H100", count=8, cpus=16),
        ResourceConfig.with_tpu("v5p-8", time="1d"),
    ],
)
def test_a_config_is_read_back_from_how_it_is_shown(config: ResourceConfig):
    assert eval(repr(config)) == config
    assert replace(config, cpus=3) == replace(eval(repr(config)), cpus=3)
    assert hash(replace(config)) == hash(config)


def test_amounts_are_kept_in_bytes_and_seconds():
    config = ResourceConfig(memory="16GB", disk="512MiB", time="1h30m")
    assert (config.memory, config.disk, config.time) == (16 * 10**9, 512 * 2**20, 5400)


def test_gpus_alone_mean_cuda():
    assert ResourceConfig(gpus=2).device == Device("cuda")
    assert ResourceConfig(device="cuda").gpus == 1


def test_a_config_does_not_change():
    config: Any = ResourceConfig()
    with pytest.raises(FrozenInstanceError):
        config.cpus = 2


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"cpus": 0}, "cpus=0 is not a number of cores"),
        ({"cpus": -1}, "cpus=-1 is not"),
        ({"cpus": math.nan}, "cpus=nan is not"),
        ({"cpus": math.inf}, "cpus=inf is not"),
        ({"cpus": True}, "cpus=True is not"),
        ({"cpus": "4"}, "cpus='4' is not"),
        ({"gpus": -1}, "gpus=-1 is not"),
        ({"gpus": 1.5}, "gpus=1.5 is not"),
        ({"gpus": 2, "device": "cpu"}, "gpus=2 with device='cpu': leave device out, or write device='cuda'"),
        ({"gpus": 1, "device": "tpu"}, "gpus=1 with device='tpu'"),
        ({"gpus": 2, "device": "cuda:0"}, "gpus=2 with device='cuda:0', which is 1"),
        ({"gpus": 0, "device": "cuda"}, "gpus=0 with device='cuda', which is 1: write device='cpu'"),
        ({"accelerator": "H100"}, r"without a device: write ResourceConfig.with_gpu\('H100'\)"),
        ({"accelerator": "H 100", "gpus": 1}, "accelerator='H 100' is not the name of a type"),
        ({"accelerator": "", "gpus": 1}, "accelerator='' is not"),
        ({"memory": "16G"}, "memory='16G' .* did you mean '16GB'"),
        ({"time": "2hours"}, "time='2hours' .* did you mean '2h'"),
        ({"device": "gpu"}, "did you mean 'cuda'"),
    ],
)
def test_what_can_not_be_meant_is_refused(given: dict[str, Any], match: str):
    with pytest.raises(InvalidResourcesError, match=match):
        ResourceConfig(**given)


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


@pytest.mark.parametrize("given", [("xpu",), ("cuda", -1), ("cuda", True), ("cuda", 1.0), ("cuda", 10_000), (None,)])
def test_a_device_that_is_none_is_refused(given: tuple[Any, ...]):
    with pytest.raises(InvalidResourcesError, match=r"Device\(.*give a kind, 'cpu', 'cuda' or 'tpu'"):
        Device(*given)
