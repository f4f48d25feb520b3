"""A clock that stands still."""

from __future__ import annotations


class FakeClock:
    """Gives ``now``, in seconds, until the test sets another time. For whatever takes a ``clock=``.

    >>> clock = FakeClock()
    >>> clock.advance(90)
    >>> clock()
    90.0
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass. ``seconds`` below zero set the clock back, as people do with wall clocks."""
        self.now += seconds
