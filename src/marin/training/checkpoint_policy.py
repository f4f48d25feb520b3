"""When a training saves its state, and how many of these checkpoints are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marin.errors import ConfigurationError
from marin.processing.scalars import finite_number, with_plain_numbers
from marin.training import defaults

__all__ = ["CheckpointPolicy"]


@dataclass(frozen=True, kw_only=True)
class CheckpointPolicy:
    """Rolling checkpoints by time, permanent ones by steps. Not identity: saving changes no result.

    - ``seconds``: between two rolling ones, which is the work that a kill may cost; 0 saves after each step if the disk
      is fast enough.
    - ``keep``: how many rolling ones there are at most. They are removed when the training is done.
    - ``every``: steps between permanent ones, which stay with the artifact as ``checkpoints/step-N``; ``None``: none.
    - ``keep_permanent``: only so many of the newest permanent ones stay; ``None``: all.

    >>> list(CheckpointPolicy(every=1000, keep_permanent=5).permanent_steps(12_500))
    [8000, 9000, 10000, 11000, 12000]
    """

    fingerprint_name: ClassVar[str] = "marin.CheckpointPolicy"

    seconds: float = defaults.CHECKPOINT_SECONDS
    keep: int = defaults.CHECKPOINTS_KEPT
    every: int | None = None
    keep_permanent: int | None = None

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        for name, value, fits, wanted in (
            ("seconds", self.seconds, _is_duration(self.seconds), "a finite number of seconds, zero or more"),
            ("keep", self.keep, _is_count(self.keep), "a whole number, one or more"),
            ("every", self.every, self.every is None or _is_count(self.every), "a positive number of steps, or None"),
            (
                "keep_permanent",
                self.keep_permanent,
                self.keep_permanent is None or _is_count(self.keep_permanent),
                "a whole number, one or more, or None for all",
            ),
        ):
            if not fits:
                raise ConfigurationError(f"CheckpointPolicy: {name}={value!r} is not {wanted}")
        if self.keep_permanent is not None and self.every is None:
            raise ConfigurationError(
                f"CheckpointPolicy: keep_permanent={self.keep_permanent}, but without every= there are no permanent "
                "checkpoints: give every=1000, or leave keep_permanent out"
            )

    def is_permanent(self, step: int) -> bool:
        """Whether the state after ``step`` updates is kept for good."""
        return self.every is not None and step > 0 and step % self.every == 0

    def permanent_steps(self, num_steps: int) -> range:
        """The steps of the permanent checkpoints that a training of ``num_steps`` leaves behind."""
        steps = range(0) if self.every is None else range(self.every, num_steps + 1, self.every)
        return steps if self.keep_permanent is None else steps[-self.keep_permanent :]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_duration(value: object) -> bool:
    seconds = finite_number(value)
    return seconds is not None and seconds >= 0
