"""Optimizers, described: which one, and its learning rate at each step.

What they compute is in ``optimizer_rules``, which only the process of the training imports. An optimizer of your own is
a class like these, and a function that it names: see ``OptimizerConfig``.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeGuard, cast, runtime_checkable

from marin.errors import ConfigurationError
from marin.execution.fingerprint import absent_means
from marin.processing.scalars import with_plain_numbers
from marin.training import defaults, schedules
from marin.training.schedules import SCHEDULES, Schedule

_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
"""What float32, in which the optimizer computes, can hold at full precision."""

_BELOW_ONE = 1 - 2.0**-24
"""The last number of float32 before 1. With a beta that is rounded to 1 Adam divides zero by zero."""


@runtime_checkable
class OptimizerConfig(Protocol):
    """A frozen dataclass that says which optimizer, with which numbers.

    Its fields are part of the recipe. Its code is not: change that under another version.

    ``transformation`` names a function, such as ``"my_project.my_rule:transformation"``, that takes the config and
    returns an ``optax.GradientTransformation``. What that makes of a gradient is a direction: of each parameter the
    training subtracts ``learning_rate * direction``. Clipping and weight decay are up to it; ``optimizer_rules`` has
    both. It is called with gradients that are not finite, too; what it then returns is not used.
    """

    transformation: ClassVar[str]

    def learning_rate(self, step: int, num_steps: int) -> float:
        """The rate of update ``step`` (from 0) of ``num_steps``. A function of the step only."""
        ...


@runtime_checkable
class Scheduled(Protocol):
    """A config whose learning rate is one of ``schedules``."""

    @property
    def lr(self) -> float: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def warmup(self) -> int | float: ...
    @property
    def decay(self) -> int | float | None: ...
    @property
    def min_lr_ratio(self) -> float: ...


@runtime_checkable
class Decaying(Protocol):
    """A config with the weight decay of ``optimizer_rules``: of matrices, and of embeddings if it says so."""

    @property
    def weight_decay(self) -> float: ...
    @property
    def decay_embeddings(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class AdamConfig:
    """AdamW: Adam with decoupled weight decay on matrices (arrays of rank two or more) and gradient clipping.

    ``warmup`` and ``decay`` are numbers of steps (``int``) or parts of all steps (``float`` below 1);
    ``decay=None`` leaves it to the schedule. ``clip_norm=None`` does not clip. ``decay_embeddings=False`` leaves out
    the matrices that embed tokens or positions, those that are the head too included.

    >>> warm = AdamConfig(lr=1.0, warmup=3, schedule="linear", min_lr_ratio=0.0)
    >>> [round(warm.learning_rate(step, num_steps=8), 2) for step in range(8)]
    [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    fingerprint_name: ClassVar[str] = "marin.AdamConfig"
    transformation: ClassVar[str] = "marin.training.optimizer_rules:adamw"

    lr: float
    betas: tuple[float, float] = defaults.BETAS
    eps: float = defaults.EPSILON
    weight_decay: float = defaults.WEIGHT_DECAY
    decay_embeddings: bool = field(default=defaults.DECAY_EMBEDDINGS, metadata=absent_means(True))
    clip_norm: float | None = defaults.CLIP_NORM
    schedule: Schedule = defaults.SCHEDULE
    warmup: int | float = defaults.WARMUP
    decay: int | float | None = field(default=None, metadata=absent_means(None))
    min_lr_ratio: float = defaults.MIN_LR_RATIO

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        _check(
            self,
            betas=(_are_betas(self.betas), "two numbers in [0, 1), as a tuple (0.9, 0.95), and in float32 below 1"),
            eps=(_positive(self.eps), "a positive number of float32"),
        )

    def learning_rate(self, step: int, num_steps: int) -> float:
        """The rate of update ``step`` (from 0) of ``num_steps``. A function of the step only.

        With ``w`` warm-up steps: it rises as ``lr * (step + 1) / (w + 1)``, is ``lr`` at step ``w``, and falls to
        ``lr * min_lr_ratio`` at the last step; ``schedules.learning_rate`` says how.
        """
        return _learning_rate(self, step, num_steps)


@dataclass(frozen=True, kw_only=True)
class LionConfig:
    """Lion (Chen et al., 2023): the sign of a running mean of the gradient, one number of state per parameter.

    Every number moves by the rate, however small its gradient: ``lr`` wants to be 3 to 10 times smaller than AdamW's.
    ``betas``: how the mean is mixed with the gradient for the sign, and how it is kept. Weight decay, clipping and the
    learning rate are as of ``AdamConfig``.
    """

    fingerprint_name: ClassVar[str] = "marin.LionConfig"
    transformation: ClassVar[str] = "marin.training.optimizer_rules:lion"

    lr: float
    betas: tuple[float, float] = defaults.LION_BETAS
    weight_decay: float = defaults.LION_WEIGHT_DECAY
    decay_embeddings: bool = defaults.DECAY_EMBEDDINGS
    clip_norm: float | None = defaults.CLIP_NORM
    schedule: Schedule = defaults.SCHEDULE
    warmup: int | float = defaults.WARMUP
    decay: int | float | None = None
    min_lr_ratio: float = defaults.MIN_LR_RATIO

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        _check(
            self,
            betas=(_are_betas(self.betas), "two numbers in [0, 1), as a tuple (0.9, 0.99), and in float32 below 1"),
        )

    def learning_rate(self, step: int, num_steps: int) -> float:
        """As of ``AdamConfig``."""
        return _learning_rate(self, step, num_steps)


@dataclass(frozen=True, kw_only=True)
class SgdConfig:
    """Stochastic gradient descent with momentum: ``m = momentum * m + gradient``, and the direction is ``m``.

    ``nesterov``: it is ``gradient + momentum * m``. ``momentum=0`` keeps no state. Weight decay is decoupled from the
    momentum, as of ``AdamConfig``, and so are clipping and the learning rate.
    """

    fingerprint_name: ClassVar[str] = "marin.SgdConfig"
    transformation: ClassVar[str] = "marin.training.optimizer_rules:sgd"

    lr: float
    momentum: float = defaults.MOMENTUM
    nesterov: bool = False
    weight_decay: float = defaults.SGD_WEIGHT_DECAY
    decay_embeddings: bool = defaults.DECAY_EMBEDDINGS
    clip_norm: float | None = defaults.CLIP_NORM
    schedule: Schedule = defaults.SCHEDULE
    warmup: int | float = defaults.WARMUP
    decay: int | float | None = None
    min_lr_ratio: float = defaults.MIN_LR_RATIO

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        has_momentum = _finite(self.momentum) and 0 < self.momentum < 1
        _check(
            self,
            momentum=(has_momentum or _is_zero(self.momentum), "a number in [0, 1)"),
            nesterov=(
                self.nesterov is False or (_is_bool(self.nesterov) and has_momentum),
                "False, or True with a momentum above 0",
            ),
        )

    def learning_rate(self, step: int, num_steps: int) -> float:
        """As of ``AdamConfig``."""
        return _learning_rate(self, step, num_steps)


def is_optimizer_config(value: object) -> TypeGuard[OptimizerConfig]:
    """Whether ``value`` can train, as far as can be told without importing its transformation."""
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and isinstance(getattr(type(value), "transformation", None), str)
        and isinstance(value, OptimizerConfig)
    )


def filled_in(config: OptimizerConfig) -> OptimizerConfig:
    """``config`` with what its author left open and ``defaults`` has a number for, so that the recipe shows it.

    >>> filled_in(AdamConfig(lr=1.0, schedule="wsd")) == AdamConfig(lr=1.0, schedule="wsd", decay=0.2)
    True
    """
    if isinstance(config, AdamConfig | LionConfig | SgdConfig) and config.schedule == "wsd" and config.decay is None:
        return dataclasses.replace(config, decay=defaults.WSD_DECAY)
    return config


def learning_rate_text(config: OptimizerConfig, num_steps: int) -> str:
    """The line about the learning rate that a training prints before its first step.

    >>> learning_rate_text(AdamConfig(lr=1e-3, schedule="wsd"), 1000)
    'learning rate 0.001, 0.0001 at the last step; wsd: 50 steps of warm-up, 750 at the peak, 200 of decay'
    """
    last = config.learning_rate(num_steps - 1, num_steps)
    if not isinstance(config, Scheduled):
        return f"learning rate {config.learning_rate(0, num_steps):.3g} at the first step, {last:.3g} at the last"
    phases = schedules.phases_text(config.schedule, num_steps, warmup=config.warmup, decay=config.decay)
    return f"learning rate {config.lr:.3g}, {last:.3g} at the last step; {phases}"


def _learning_rate(config: Scheduled, step: int, num_steps: int) -> float:
    return schedules.learning_rate(
        step,
        num_steps,
        lr=config.lr,
        schedule=config.schedule,
        warmup=config.warmup,
        decay=config.decay,
        min_lr_ratio=config.min_lr_ratio,
    )


def _check(config: AdamConfig | LionConfig | SgdConfig, **own: tuple[bool, str]) -> None:
    """Raise ``ConfigurationError`` for the first field that does not fit: those that all have, and ``own``."""
    ratio, clip, weight_decay = config.min_lr_ratio, config.clip_norm, config.weight_decay
    rows = {
        "lr": (_positive(config.lr), "a positive number of float32"),
        **own,
        "weight_decay": (_finite(weight_decay) and 0 <= weight_decay <= _LARGEST, "zero or more, in float32"),
        "decay_embeddings": (_is_bool(config.decay_embeddings), "True or False"),
        "clip_norm": (clip is None or _positive(clip), "a positive number, or None"),
        "schedule": (config.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}"),
        "warmup": (schedules.is_warmup(config.warmup), "a number of steps (3) or a part of all steps (0.05)"),
        "decay": (schedules.is_decay(config.decay), "a number of steps (300) or a part of all steps (0.2), or None"),
        "min_lr_ratio": (_finite(ratio) and 0 <= ratio <= 1, "between 0 and 1"),
    }
    name = type(config).__name__
    for key, (fits, wanted) in rows.items():
        if not fits:
            raise ConfigurationError(f"{name}: {key}={getattr(config, key)!r} is not {wanted}")
    if config.schedule == "constant" and config.decay is not None:
        raise ConfigurationError(
            f"{name}: decay={config.decay!r}, but schedule='constant' has no decay: take 'wsd', or leave decay out"
        )
    if not schedules.fit_together(config.warmup, config.decay):
        raise ConfigurationError(
            f"{name}: warmup={config.warmup!r} and decay={config.decay!r} are together more than all steps: shorten one"
        )


def _finite(value: object) -> TypeGuard[float]:
    # Compared, not converted: an integer can be too large for a float.
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def _positive(value: object) -> bool:
    """Above zero also when it is rounded to float32, and finite then."""
    return _finite(value) and _SMALLEST <= value <= _LARGEST


def _is_zero(value: object) -> bool:
    return _finite(value) and value == 0


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _are_betas(value: object) -> bool:
    pair = cast("tuple[Any, ...]", value)
    return (
        isinstance(value, tuple) and len(pair) == 2 and all(_finite(beta) and 0 <= beta <= _BELOW_ONE for beta in pair)
    )
