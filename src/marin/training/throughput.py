"""How fast a training goes: tokens per second and model FLOPs utilization of this process's time for training alone."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax

from marin.training.checkpoint import Precision
from marin.training.device_peaks import Arithmetic, peak_flops

_COMPILED = "/jax/core/compile/backend_compile_duration"
"""The event that JAX records for each program that it compiles or takes from its cache."""


class Throughput:
    """Measures from the end of one step to the end of the next; compiling, validating and saving are left out."""

    def __init__(
        self,
        *,
        tokens_per_step: int,
        flops_per_token: float = 0.0,
        peak: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        compiled: Callable[[], int] | None = None,
    ) -> None:
        """``tokens_per_step`` and ``peak`` (operations per second, ``None`` if not known) are of all devices together.

        ``compiled``: how many programs this process has compiled so far.
        """
        self._tokens_per_step, self._flops_per_token, self._peak = tokens_per_step, flops_per_token, peak
        self._clock = clock
        self._compiled = compiled or compiled_programs()
        self._mark: float | None = None
        self._mark_compiled = 0
        self._steps, self._seconds, self._away_seconds = 0, 0.0, 0.0

    def step_done(self) -> None:
        """Note the end of a step. The first one is not measured: it is compiled, and nobody saw it begin."""
        now, compiled = self._clock(), self._compiled()
        if self._mark is not None and compiled == self._mark_compiled:
            self._seconds, self._steps = self._seconds + now - self._mark, self._steps + 1
        self._mark, self._mark_compiled = now, compiled

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Leave out the time inside: validating, saving. Begin it when no step is being computed."""
        begin = self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - begin
            if self._mark is not None:  # the validation before step 1 comes once, and is compiled
                self._away_seconds += seconds
                self._mark += seconds
                self._mark_compiled = self._compiled()

    @property
    def tokens_per_second(self) -> float | None:
        """``None`` until two steps are done."""
        return self._steps * self._tokens_per_step / self._seconds if self._seconds else None

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization, of 1: what the model needs, against the peak. ``None`` where that is not known."""
        speed = self.tokens_per_second
        return None if speed is None or not self._peak else speed * self._flops_per_token / self._peak

    def seconds_left(self, steps: int) -> float | None:
        """How long ``steps`` more will take, validating and saving as often as until now."""
        return steps * (self._seconds + self._away_seconds) / self._steps if self._steps else None


def devices_peak(devices: Sequence[Any], precision: Precision) -> float | None:
    """Operations per second of ``devices`` together in the training's arithmetic; ``None`` if one is not known."""
    peaks = [peak_flops(device.device_kind, arithmetic(precision)) for device in devices]
    known = [peak for peak in peaks if peak is not None]
    return sum(known) if known and len(known) == len(peaks) else None


def arithmetic(precision: Precision) -> Arithmetic:
    """How matrix products of ``precision`` are computed where the device has a choice.

    JAX takes the faster of the two ways for float32, unless ``jax_default_matmul_precision`` asks for the exact one.
    """
    if precision == "bfloat16":
        return "bfloat16"
    exact = ("float32", "highest", "F32_F32_F32")
    asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    return "float32" if asked in exact else "tensorfloat32"


@functools.cache
def compiled_programs() -> Callable[[], int]:
    """A counter of the programs that this process compiles from the first call on."""
    count = 0

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        nonlocal count
        del duration_secs
        if event == _COMPILED:
            count += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    return lambda: count
