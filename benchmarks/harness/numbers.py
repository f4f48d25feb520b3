"""From samples to figures: medians, cost per step, ratios. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness.command import Sample


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured quantity.

    - ``median``: what claims are decided by; ``least``: of the fastest round, which noise touches least.
    - ``cpu``: the median of processor time, in the same unit. ``None``: it is no time of a whole command.
    """

    median: float
    least: float
    unit: str
    cpu: float | None = None

    def __sub__(self, other: Figure) -> Figure:
        return Figure(
            median=self.median - other.median,
            least=self.least - other.least,
            unit=self.unit,
            cpu=None if self.cpu is None or other.cpu is None else self.cpu - other.cpu,
        )

    def scaled(self, factor: float, unit: str) -> Figure:
        """The same quantity in another unit, or per piece."""
        cpu = None if self.cpu is None else self.cpu * factor
        return Figure(median=self.median * factor, least=self.least * factor, unit=unit, cpu=cpu)

    def rate(self, amount: float, unit: str) -> Figure:
        """``amount`` in this time, which is one in seconds. ``least`` is of the fastest round, and so the largest."""
        if self.median <= 0 or self.least <= 0:
            raise ValueError(f"{amount:g} {unit} in {self} is no rate")
        cpu = None if self.cpu is None or self.cpu <= 0 else amount / self.cpu
        return Figure(median=amount / self.median, least=amount / self.least, unit=unit, cpu=cpu)

    def __str__(self) -> str:
        return f"{number(self.median)} {self.unit}"


def number(value: float) -> str:
    """Three digits that matter: ``0.0123``, ``4.56``, ``789``."""
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if whole:
        return f"{value:,.{max(0, 3 - whole)}f}"
    return f"{value:.3g}"


def figure(values: Sequence[float], unit: str) -> Figure:
    """What ``values`` of several rounds come to. Raises ``ValueError`` if there are none."""
    if not values:
        raise ValueError("nothing was measured")
    return Figure(median=statistics.median(values), least=min(values), unit=unit)


def per_step(many: Figure, one: Figure, steps: int) -> Figure:
    """Milliseconds that each further step costs: (T(steps) - T(1)) / (steps - 1), of seconds of whole commands."""
    if steps < 2:
        raise ValueError(f"a cost per step needs at least 2 steps, not {steps}")
    return (many - one).scaled(1000 / (steps - 1), "ms/step")


@dataclass(frozen=True)
class Measured:
    """The samples of every command, by label and size."""

    samples: Mapping[tuple[str, int], Sequence[Sample]]

    def of(self, label: str, size: int, value: Callable[[Sample], float], unit: str) -> Figure:
        """What ``value`` of each sample comes to."""
        return figure([value(sample) for sample in self.samples[label, size]], unit)

    def worst(self, label: str, size: int, value: Callable[[Sample], float], unit: str) -> Figure:
        """The largest value of all rounds in place of the median, for claims about every single run."""
        values = [value(sample) for sample in self.samples[label, size]]
        return Figure(median=max(values), least=min(values), unit=unit)

    def seconds(self, label: str, size: int = 1) -> Figure:
        """The time of the whole command."""
        times = self.of(label, size, lambda sample: sample.seconds, "s")
        cpu = self.of(label, size, lambda sample: sample.cpu_seconds, "s")
        return Figure(median=times.median, least=times.least, unit="s", cpu=cpu.median)

    def said(self, label: str, size: int, name: str) -> Figure:
        """Seconds that the program itself took, and said as ``name``; its processor time as ``name_cpu``."""
        times = self.of(label, size, lambda sample: sample.said[name], "s")
        cpu = self.of(label, size, lambda sample: sample.said[f"{name}_cpu"], "s")
        return Figure(median=times.median, least=times.least, unit="s", cpu=cpu.median)

    def per_step(self, label: str, steps: int) -> Figure:
        """Milliseconds that each step after the first costs."""
        return per_step(self.seconds(label, steps), self.seconds(label), steps)
