"""How much memory a training has used so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SAMPLE_SECONDS = 1.0
"""How often it is read, at most: between, the last reading is given again."""


class MemoryMeter:
    """Reads ``device_peak_bytes``, of the device that used most, or else ``resident_bytes`` of this process."""

    def __init__(self, devices: Sequence[Any], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._devices, self._clock = devices, clock
        self._read_at = float("-inf")
        self._reading: Mapping[str, int] = {}

    def read(self) -> Mapping[str, int]:
        """For a row of metrics; empty where the system tells neither."""
        now = self._clock()
        if now - self._read_at >= SAMPLE_SECONDS:
            self._read_at, self._reading = now, _device_peak(self._devices) or _resident()
        return self._reading


def _device_peak(devices: Sequence[Any]) -> dict[str, int]:
    stats = [device.memory_stats() or {} for device in devices]  # a CPU has none
    peaks = [each["peak_bytes_in_use"] for each in stats if "peak_bytes_in_use" in each]
    return {"device_peak_bytes": max(peaks)} if peaks else {}


def _resident() -> dict[str, int]:
    try:
        with open("/proc/self/statm", "rb") as file:
            return {"resident_bytes": int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}
    except OSError:
        return {}
