"""How many threads work on the steps of a run. Pure.

Steps that take a millisecond are mostly Python: a second thread would not make them faster, only fight with the first
one for the interpreter. Steps that wait or compute gain from every thread.
"""

from __future__ import annotations

TICK_SECONDS = 0.005
"""How often the number of threads is thought over while steps wait for one. What runs longer is not quick."""

_SATURATED = 0.6
"""The share of one core from which a process counts as busy: less means that its steps wait for something."""


def wanted_threads(limit: int, *, taken: int, long: int, busy: int, processor_share: float) -> int:
    """How many threads should work from now on, at most ``limit``.

    Of the last tick: ``taken`` steps began in it; ``busy`` threads work at its end, ``long`` of them on steps that
    began before it; ``processor_share`` is the time on processors that this process has used, over the tick's length.

    >>> wanted_threads(8, taken=4, long=0, busy=1, processor_share=0.9)
    1
    >>> wanted_threads(8, taken=0, long=1, busy=1, processor_share=0.9)
    8
    """
    quick = taken > 2 * max(1, busy - long)
    return min(limit, long + 1) if quick and processor_share >= _SATURATED else limit
