"""Optimizers, described: which one, at which learning rate, step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeGuard, cast, get_args

from marin.errors import ConfigurationError
from marin.training import defaults

Schedule = Literal["constant", "linear", "cosine"]

_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
"""What float32, in which the optimizer computes, can hold at full precision."""


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """AdamW: Adam with decoupled weight decay on matrices (arrays of rank two or more) and gradient clipping.

    ``warmup`` is a number of steps (``int``) or a part of all steps (``float`` below 1).
    ``clip_norm=None`` does not clip.

    >>> warm = AdamConfig(lr=1.0, warmup=3, schedule="linear", min_lr_ratio=0.0)
    >>> [round(warm.learning_rate(step, num_steps=8), 2) for step in range(8)]
    [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    fingerprint_name: ClassVar[str] = "marin.AdamConfig"

    lr: float
    betas: tuple[float, float] = defaults.BETAS
    eps: float = defaults.EPSILON
    weight_decay: float = defaults.WEIGHT_DECAY
    clip_norm: float | None = defaults.CLIP_NORM
    schedule: Schedule = defaults.SCHEDULE
    warmup: int | float = defaults.WARMUP
    min_lr_ratio: float = defaults.MIN_LR_RATIO

    def __post_init__(self) -> None:
        for name, value, fits, wanted in (
            ("lr", self.lr, _positive(self.lr), "a positive number of float32"),
            (
                "betas",
                self.betas,
                _are_betas(self.betas),
                "two numbers in [0, 1), as a tuple (0.9, 0.95)",
            ),
            ("eps", self.eps, _positive(self.eps), "a positive number of float32"),
            ("weight_decay", self.weight_decay, _finite(self.weight_decay) and self.weight_decay >= 0, "zero or more"),
            (
                "clip_norm",
                self.clip_norm,
                self.clip_norm is None or _positive(self.clip_norm),
                "a positive number, or None",
            ),
            ("schedule", self.schedule, self.schedule in get_args(Schedule), f"one of {', '.join(get_args(Schedule))}"),
            ("warmup", self.warmup, _is_warmup(self.warmup), "a number of steps (3) or a part of all steps (0.05)"),
            (
                "min_lr_ratio",
                self.min_lr_ratio,
                _finite(self.min_lr_ratio) and 0 <= self.min_lr_ratio <= 1,
                "between 0 and 1",
            ),
        ):
            if not fits:
                raise ConfigurationError(f"AdamConfig: {name}={value!r} is not {wanted}")

    def warmup_steps(self, num_steps: int) -> int:
        """How many of ``num_steps`` are warm-up."""
        if isinstance(self.warmup, int):
            return min(self.warmup, num_steps)
        return int(self.warmup * num_steps)

    def learning_rate(self, step: int, num_steps: int) -> float:
        """The rate of update ``step`` (from 0) of ``num_steps``. A function of the step only.

        With ``w`` warm-up steps: it rises as ``lr * (step + 1) / (w + 1)``, is ``lr`` at step ``w``, and falls to
        ``lr * min_lr_ratio`` at the last step.
        """
        warmup = self.warmup_steps(num_steps)
        if step < warmup:
            return self.lr * (step + 1) / (warmup + 1)
        if self.schedule == "constant":
            return self.lr
        done = min(1.0, (step - warmup) / max(1, num_steps - 1 - warmup))
        left = 1 - done if self.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.lr * (self.min_lr_ratio + (1 - self.min_lr_ratio) * left)


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _positive(value: object) -> bool:
    """Above zero also when it is rounded to float32, and finite then."""
    return _finite(value) and _SMALLEST <= value <= _LARGEST


def _are_betas(value: object) -> bool:
    pair = cast("tuple[Any, ...]", value)
    return isinstance(value, tuple) and len(pair) == 2 and all(_finite(beta) and 0 <= beta < 1 for beta in pair)


def _is_warmup(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return (isinstance(value, int) and value >= 0) or (isinstance(value, float) and 0 <= value < 1)
