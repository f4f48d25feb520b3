"""Rotary positions for longer texts than a model was first trained on, described."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from marin.errors import ConfigurationError
from marin.processing.scalars import with_plain_numbers

RopeKind: TypeAlias = Literal["linear", "llama3"]


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How the frequencies of rotary positions are lowered. Make one with ``linear_scaling`` or ``llama3_scaling``.

    ``"linear"`` divides all by ``factor``. ``"llama3"`` divides those by it that turn fewer than ``low_freq_factor``
    times in ``original_max_seq_len`` tokens, keeps those that turn more than ``high_freq_factor`` times, and goes from
    one to the other in between.
    """

    fingerprint_name: ClassVar[str] = "marin.RopeScaling"

    kind: RopeKind
    factor: float
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_seq_len: int | None = None

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        band = {
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
            "original_max_seq_len": self.original_max_seq_len,
        }
        if self.kind == "linear":
            if given := [name for name, value in band.items() if value is not None]:
                raise ConfigurationError(f"RopeScaling: kind='linear' takes no {given[0]}: leave it out")
        elif self.kind != "llama3":  # pyright: ignore[reportUnnecessaryComparison]
            raise ConfigurationError(f"RopeScaling: kind={self.kind!r} is neither 'linear' nor 'llama3'")
        numbers = {"factor": self.factor, **(band if self.kind == "llama3" else {})}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ConfigurationError(f"RopeScaling: {name}={value!r} is not a positive number")
        if self.kind == "llama3" and not (self.low_freq_factor or 0) < (self.high_freq_factor or 0):
            raise ConfigurationError(
                f"RopeScaling: low_freq_factor={self.low_freq_factor} is not below "
                f"high_freq_factor={self.high_freq_factor}"
            )


def linear_scaling(factor: float) -> RopeScaling:
    """Positions divided by ``factor``.

    >>> linear_scaling(4.0).kind
    'linear'
    """
    return RopeScaling(kind="linear", factor=factor)


def llama3_scaling(
    *,
    factor: float = 8.0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    original_max_seq_len: int = 8192,
) -> RopeScaling:
    """The scaling of Llama 3.1 and later; the defaults are those of its 8B model.

    >>> llama3_scaling().original_max_seq_len
    8192
    """
    return RopeScaling(
        kind="llama3",
        factor=factor,
        low_freq_factor=low_freq_factor,
        high_freq_factor=high_freq_factor,
        original_max_seq_len=original_max_seq_len,
    )
