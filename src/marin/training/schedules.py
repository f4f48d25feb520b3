"""Learning rates: pure functions of the number of a step, so that a resumed training goes on with the right one.

A training has up to three phases: the warm-up, in which the rate rises to its peak; the steps between; the decay, in
which it falls to the rate of the last step.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, NamedTuple, TypeGuard, get_args

from marin.training import defaults

Schedule = Literal["constant", "linear", "cosine", "wsd", "inv_sqrt"]
"""How the rate goes on after the warm-up.

- ``constant``: it stays at its peak. There is no decay, and no lowest rate.
- ``linear``, ``cosine``: it falls on a line, or on half a wave of the cosine: from the end of the warm-up on, or if
  ``decay`` is given, in the end only.
- ``wsd`` (warm-up, stable, decay): it stays, and falls on a line in the end. Without ``decay``:
  ``defaults.WSD_DECAY`` of all steps.
- ``inv_sqrt``: it falls with the inverse square root of the number of steps, never below the lowest rate. Without
  ``decay`` it does so up to the end, else it falls on a line in the end.
"""

SCHEDULES: tuple[str, ...] = get_args(Schedule)


class Phases(NamedTuple):
    """Numbers of steps, from 0: the peak, the last step before the decay, and the last step of all.

    In a training that is all warm-up the peak is the step after the last, which there is not.
    """

    peak: int
    decay_start: int
    last: int


def phases(schedule: Schedule, num_steps: int, *, warmup: int | float, decay: int | float | None) -> Phases:
    """The phases of a training of ``num_steps``; ``warmup`` and ``decay`` are steps (``int``) or parts (``float``).

    In a training that is too short for both, the warm-up has its steps first, then one step is at the peak, and the
    decay has what is left. A part is rounded down; of a decay at least one step is left.

    >>> phases("wsd", 1000, warmup=50, decay=0.2)
    Phases(peak=50, decay_start=799, last=999)
    >>> phases("wsd", 100, warmup=50, decay=200)
    Phases(peak=50, decay_start=50, last=99)
    """
    peak = min(_steps(warmup, num_steps), num_steps)
    asked = _decay_steps(schedule, num_steps, decay)
    left = max(0, num_steps - 1 - peak)
    return Phases(peak, num_steps - 1 - (left if asked is None else min(asked, left)), num_steps - 1)


def learning_rate(
    step: int,
    num_steps: int,
    *,
    lr: float,
    schedule: Schedule,
    warmup: int | float,
    decay: int | float | None,
    min_lr_ratio: float,
) -> float:
    """The rate of update ``step`` (from 0) of ``num_steps``; after the last step it stays.

    With ``w`` steps of warm-up it rises as ``lr * (step + 1) / (w + 1)`` and is exactly ``lr`` at step ``w``. A decay
    brings it to ``lr * min_lr_ratio`` at the last step. Between them ``inv_sqrt`` is
    ``lr * max(min_lr_ratio, sqrt((w + 1) / (step + 1)))``. With ``T = w + 1`` and ``t = step + 1`` that is, warm-up
    included, ``lr * min(t / T, sqrt(T / t))``: the schedule of Vaswani et al., "Attention Is All You Need" (2017),
    equation 3, told by its peak.

    >>> [round(learning_rate(step, 8, lr=1.0, schedule="linear", warmup=3, decay=None, min_lr_ratio=0.0), 2)
    ...  for step in range(8)]
    [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    peak, decay_start, last = phases(schedule, num_steps, warmup=warmup, decay=decay)
    step = min(step, last)
    if step < peak:
        return lr * (step + 1) / (peak + 1)
    before_decay = 1.0
    if schedule == "inv_sqrt":
        before_decay = max(min_lr_ratio, math.sqrt((peak + 1) / (min(step, decay_start) + 1)))
    if step <= decay_start:
        return lr * before_decay
    done = (step - decay_start) / (last - decay_start)
    left = (1 + math.cos(math.pi * done)) / 2 if schedule == "cosine" else 1 - done
    return lr * (min_lr_ratio + (before_decay - min_lr_ratio) * left)


def phases_text(schedule: Schedule, num_steps: int, *, warmup: int | float, decay: int | float | None) -> str:
    """The phases in words, and what was asked for where the training is too short for it.

    >>> phases_text("wsd", 1000, warmup=50, decay=0.2)
    'wsd: 50 steps of warm-up, 750 at the peak, 200 of decay'
    >>> phases_text("wsd", 100, warmup=50, decay=200)
    'wsd: 50 steps of warm-up, 1 at the peak, 49 of decay (200 were asked for; the training is too short)'
    """
    peak, decay_start, last = phases(schedule, num_steps, warmup=warmup, decay=decay)
    between = max(0, decay_start + 1 - peak)
    parts = (
        (peak, "of warm-up", _steps(warmup, num_steps)),
        (between, "that fall with 1/sqrt(step)" if schedule == "inv_sqrt" else "at the peak", None),
        (last - decay_start, "of decay", _decay_steps(schedule, num_steps, decay)),
    )
    shown = list[str]()
    for steps, what, asked in parts:
        short = f" ({asked:,} were asked for; the training is too short)" if asked and asked > steps else ""
        if steps or short:
            shown.append(f"{steps:,} {'' if shown else 'step ' if steps == 1 else 'steps '}{what}{short}")
    return f"{schedule}: {', '.join(shown)}"


def is_warmup(value: object) -> TypeGuard[int | float]:
    """Whether it is a number of steps, or a part of all steps below 1."""
    if isinstance(value, bool):
        return False
    return (isinstance(value, int) and value >= 0) or (isinstance(value, float) and 0 <= value < 1)


def is_decay(value: object) -> TypeGuard[int | float | None]:
    """Likewise, but not zero; or left to the schedule."""
    return value is None or (is_warmup(value) and value > 0)


def fit_together(warmup: int | float, decay: int | float | None) -> bool:
    """Whether a training has room for both; for numbers of steps there is always one that is long enough."""
    if isinstance(warmup, int) or not isinstance(decay, float):
        return True
    return _as_written(warmup) + _as_written(decay) <= 1


def _decay_steps(schedule: Schedule, num_steps: int, decay: int | float | None) -> int | None:
    """As asked for; ``None``: all that the warm-up leaves."""
    if decay is None:
        if schedule in ("linear", "cosine"):
            return None
        decay = defaults.WSD_DECAY if schedule == "wsd" else 0
    return _steps(decay, num_steps) if isinstance(decay, int) else max(1, _steps(decay, num_steps))


def _steps(amount: int | float, num_steps: int) -> int:
    return amount if isinstance(amount, int) else math.floor(_as_written(amount) * num_steps)


def _as_written(part: float) -> Fraction:
    """As the author wrote it: 0.29 of 100 steps are 29, not the 28.99... of binary fractions."""
    return Fraction(str(part))
