"""Whether a step that failed is tried again, and when. Pure."""

from __future__ import annotations

import errno
from typing import Literal

from marin.errors import (
    DescriptionError,
    DeviceNotFoundError,
    LeaseLostError,
    NotEnoughResourcesError,
    OutputError,
    StepInterruptedError,
    StepStoppedError,
    StepTimeoutError,
    StoreError,
    WorkerDiedError,
)

RetryOn = Literal["crash", "error"]
"""``crash``: the step's process ended without an answer. ``error``: also whatever the step raised."""

MAX_EARLIER = 10
"""How many failed tries a record tells of: the last ones."""

_LONGEST_PAUSE = 60.0

_CRASHES = (WorkerDiedError, StepTimeoutError)

# The next try would end alike, or somebody wanted it to end.
_NEVER = (
    DescriptionError,
    OutputError,
    StoreError,
    DeviceNotFoundError,
    NotEnoughResourcesError,
    StepInterruptedError,
    StepStoppedError,
    LeaseLostError,
)

_NEVER_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Of an ``OSError`` that a step raised: a disk is not emptied by writing to it once more."""


def is_retried(fault: BaseException, on: RetryOn) -> bool:
    """Whether another try may end better.

    >>> is_retried(WorkerDiedError("out of memory"), "crash"), is_retried(ValueError("no rhyme"), "crash")
    (True, False)
    """
    if on == "crash":
        return isinstance(fault, _CRASHES)
    if isinstance(fault, OSError) and fault.errno in _NEVER_NUMBERS:
        return False
    return isinstance(fault, Exception) and not isinstance(fault, _NEVER)


def pause_before_retry(number: int, first: float) -> float:
    """Seconds before the retry of that number, counted from 1: twice as long each time, a minute at most.

    >>> [pause_before_retry(number, 2.0) for number in (1, 2, 3, 9)]
    [2.0, 4.0, 8.0, 60.0]
    """
    return min(first * 2.0 ** min(number - 1, 30), max(first, _LONGEST_PAUSE))
