"""Memory is read from the device where it tells, else from the process, and not at every step."""

from types import SimpleNamespace

import jax
import numpy as np

from marin.training.memory import SAMPLE_SECONDS, MemoryMeter


def device(stats):
    return SimpleNamespace(memory_stats=lambda: stats)


def test_the_device_that_used_most_is_told():
    meter = MemoryMeter([device({"peak_bytes_in_use": 5, "bytes_in_use": 1}), device({"peak_bytes_in_use": 9})])
    assert meter.read() == {"device_peak_bytes": 9}


def test_where_the_device_does_not_tell_it_is_the_memory_of_the_process():
    before = MemoryMeter(jax.devices("cpu")).read()["resident_bytes"]
    held = np.ones(50_000_000, np.uint8)
    assert MemoryMeter([device(None)]).read()["resident_bytes"] >= before + held.nbytes // 2


def test_it_is_read_once_in_a_while():
    now, stats = [0.0], {"peak_bytes_in_use": 1}
    meter = MemoryMeter([device(stats)], clock=lambda: now[0])
    assert meter.read() == {"device_peak_bytes": 1}
    stats["peak_bytes_in_use"] = 2
    assert meter.read() == {"device_peak_bytes": 1}
    now[0] += SAMPLE_SECONDS
    assert meter.read() == {"device_peak_bytes": 2}
