"""Try again what may pass, for a bounded number of times and a bounded time, and say what is waited for."""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar, final

import tenacity

_LOG = logging.getLogger(__name__)
_ENOUGH_PROGRESS = 1 << 20
"""Bytes after which a transfer is taken to work, so that what failed before them no longer counts."""
_SECONDS = re.compile(r"\d+(\.\d+)?", re.ASCII)
_RESET = re.compile(r"\bt\s*=\s*(\d+)", re.ASCII)
_YEAR = 365 * 24 * 3600.0
"""Longest wait that a server is taken to ask for: whoever says more means never."""

T = TypeVar("T")


def _wait(stop: threading.Event, seconds: float) -> None:
    stop.wait(seconds)


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often and how long something is tried again. What counts starts anew with each MiB that has arrived.

    ``unanswered`` bounds the tries to which nobody answers at all. Seconds: ``first`` and ``longest`` of a wait that
    doubles, ``in_all`` of all waits. ``wait`` is how to wait, ``now`` the time since the epoch.
    """

    tries: int = 8
    unanswered: int = 8
    first: float = 1.0
    longest: float = 60.0
    in_all: float = 600.0
    wait: Callable[[threading.Event, float], None] = _wait
    now: Callable[[], float] = time.time


class PassingFault(Exception):
    """What may go well on another try: no answer, a cut, a server that says "later".

    ``asked`` are the seconds that the server wants to be left alone, ``answered`` is whether there was an answer.
    """

    def __init__(
        self, reason: str, *, remedy: str = "try again later", asked: float | None = None, answered: bool = True
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.asked = asked
        self.answered = answered


class GaveUp(Exception):
    """It was tried for as long as allowed. The text has the reason, what to do, and what was tried."""


class Stopped(Exception):
    """Something beside this has failed, which ends this too."""


def retried(
    operation: Callable[[], T],
    retries: Retries,
    *,
    what: str,
    stop: threading.Event | None = None,
    arrived: Callable[[], int] = lambda: 0,
    tell: Callable[[str], None] = lambda note: None,
) -> T:
    """What ``operation`` returns, tried again after each ``PassingFault``. Raises ``GaveUp``.

    ``arrived`` are the bytes so far, ``tell`` is given a line before each wait. Raises ``Stopped`` soon after ``stop``.
    """
    halt = stop or threading.Event()
    patience = _Patience(retries, arrived)

    def attempt() -> T:
        if halt.is_set():
            raise Stopped
        return operation()

    def before_wait(state: tenacity.RetryCallState) -> None:
        fault = _fault(state)
        note = f"{fault.reason}; trying again in {state.upcoming_sleep:.0f} s ({patience.count(fault)})"
        _LOG.warning("%s: %s", what, note)
        tell(note)

    trying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(PassingFault),
        wait=patience.seconds,
        stop=patience.is_over,
        sleep=lambda seconds: retries.wait(halt, float(seconds)),
        before_sleep=before_wait,
    )
    try:
        return trying(attempt)
    except tenacity.RetryError as ended:
        fault = ended.last_attempt.exception()
        assert isinstance(fault, PassingFault)
        raise GaveUp(patience.summary(fault)) from fault


def asked_wait(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a server asks for, by ``Retry-After`` (seconds or a date) or by a used-up ``ratelimit``.

    ``None`` if it asks for none, or for nothing that can be understood; at most a year.

    >>> asked_wait({"Retry-After": "7"}, now=0.0), asked_wait({"ratelimit": '"api";r=0;t=55'}, now=0.0)
    (7.0, 55.0)
    """
    lower = {key.lower(): value.strip() for key, value in headers.items()}
    after = lower.get("retry-after", "")
    if _SECONDS.fullmatch(after):
        return min(_YEAR, float(after))
    if after and (date := _seconds_of(after)) is not None:
        # By the server's own clock where it tells it: ours may be wrong.
        return min(_YEAR, max(0.0, date - (_seconds_of(lower.get("date", "")) or now)))
    limit = lower.get("ratelimit", "")
    reset = _RESET.search(limit)
    return min(_YEAR, float(reset[1])) if reset and re.search(r"\br\s*=\s*0\b", limit) else None


def _seconds_of(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):  # of a zone or a year that no clock shows
        return None


def _fault(state: tenacity.RetryCallState) -> PassingFault:
    fault = state.outcome.exception() if state.outcome else None
    assert isinstance(fault, PassingFault)
    return fault


@final
class _Patience:
    """Counts the failures in a row, and decides how long to wait and when it is enough."""

    def __init__(self, retries: Retries, arrived: Callable[[], int]) -> None:
        self._retries = retries
        self._arrived = arrived
        self._mark = arrived()
        self._failures = self._unanswered = 0
        self._waited = 0.0

    def count(self, fault: PassingFault) -> str:
        tries = self._retries.tries if fault.answered else min(self._retries.tries, self._retries.unanswered)
        return f"try {self._failures + 1} of {tries}"

    def seconds(self, state: tenacity.RetryCallState) -> float:
        fault, retries = _fault(state), self._retries
        if self._arrived() - self._mark >= _ENOUGH_PROGRESS:
            self._mark, self._failures, self._unanswered, self._waited = self._arrived(), 0, 0, 0.0
        self._failures += 1
        self._unanswered += not fault.answered
        backoff = min(retries.longest, retries.first * 2.0 ** (self._failures - 1))
        asked = backoff if fault.asked is None else fault.asked
        # Jitter, so that those who were turned away together don't come back together.
        return asked + random.uniform(0, min(retries.first, backoff))

    def is_over(self, state: tenacity.RetryCallState) -> bool:
        retries = self._retries
        if self._failures >= retries.tries or self._unanswered >= retries.unanswered:
            return True
        if self._waited + state.upcoming_sleep > retries.in_all:
            return True
        self._waited += state.upcoming_sleep
        return False

    def summary(self, fault: PassingFault) -> str:
        tried = f"tried {self._failures} times" if self._failures > 1 else "tried once"
        if fault.asked is not None and self._waited + fault.asked > self._retries.in_all:
            asked = f"{fault.asked:,.0f} s" if fault.asked < _YEAR else "a year or more"
            waits = f"it asks to be left alone for {asked}, more than is waited here: run again after that"
            return f"{fault.reason}: {waits} ({tried})"
        return f"{fault.reason}: {fault.remedy} ({tried}, waiting {self._waited:,.0f} s)"
