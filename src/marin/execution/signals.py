"""Signal handlers that stay with the process that installed them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

Handler = Callable[[int, FrameType | None], object]

_PYTHONS_OWN = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
"""What a process of Python does with these signals unless told otherwise."""


@dataclass(frozen=True)
class in_this_process:  # wraps a function, and reads like one
    """``handler``, for ``signal.signal`` with SIGINT and SIGTERM, which a forked child does not inherit.

    A child would take a note of its end, or raise where that is caught, or be stuck in a call that no handler
    interrupts: a process pool that ends its workers would wait for them without end.
    """

    handler: Handler
    owner: int = field(default_factory=os.getpid)

    def __call__(self, number: int, frame: FrameType | None) -> object:
        if os.getpid() == self.owner:
            return self.handler(number, frame)
        # A child that ``_give_back`` did not reach, such as one of a fork in C.
        signal.signal(number, _PYTHONS_OWN[signal.Signals(number)])
        os.kill(os.getpid(), number)
        return None


class _Blocked(threading.local):
    """The signals that a thread had blocked before it began to fork; None while it does not."""

    mask: set[signal.Signals] | set[int] | None = None


_BLOCKED = _Blocked()


def _is_ours(number: signal.Signals) -> bool:
    return isinstance(signal.getsignal(number), in_this_process)


def _hold_back() -> None:
    # Python forgets the signals that come to a child in its first moments. Blocked, they wait for ``_give_back``.
    ours = [number for number in _PYTHONS_OWN if _is_ours(number)]
    if ours:
        _BLOCKED.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ours)


def _let_come() -> None:
    if _BLOCKED.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _BLOCKED.mask)
        _BLOCKED.mask = None


def _give_back() -> None:
    for number, own in _PYTHONS_OWN.items():
        if _is_ours(number):
            signal.signal(number, own)
    _let_come()


os.register_at_fork(before=_hold_back, after_in_parent=_let_come, after_in_child=_give_back)
