"""What the hosts of a training do together: stop, and save because it is time.

A signal reaches one host, and clocks differ. So each gives its wish with a step, all get the same answer with the loss
of that step, and act on it before the same later one.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np

from marin.training.interrupts import Interrupts, StopRequested
from marin.training.placement import Placement


class Agreement(Protocol):
    """Whether to stop or to save, the same on all hosts."""

    @property
    def stop_signal(self) -> signal.Signals | None:
        """The signal that some host got."""
        ...

    def wishes(self) -> Any:
        """What this host wants, for the next step."""
        ...

    def hear(self, answer: Any) -> None:
        """Take what a step that is done has answered."""
        ...

    def check(self) -> None:
        """Raise ``StopRequested`` if a signal has come."""
        ...

    def check_now(self) -> None:
        """The same where no step is under way: all hosts ask each other."""
        ...

    def is_time(self) -> bool:
        """Whether the time between two checkpoints is over."""
        ...

    def save_begins(self) -> None:
        """Note that the state is saved now."""
        ...


class Alone:
    """One host agrees with itself, at once."""

    def __init__(self, interrupts: Interrupts, is_time: Callable[[], bool]) -> None:
        self._interrupts, self.is_time = interrupts, is_time

    @property
    def stop_signal(self) -> signal.Signals | None:
        return self._interrupts.received

    def wishes(self) -> None:
        return None

    def hear(self, answer: Any) -> None:
        pass

    def check(self) -> None:
        self._interrupts.check()

    def check_now(self) -> None:
        self._interrupts.check()

    def save_begins(self) -> None:
        pass


class Together:
    """Several hosts. ``is_time`` is that of host 0; of others ``None``."""

    def __init__(self, interrupts: Interrupts, is_time: Callable[[], bool] | None, placement: Placement) -> None:
        self._interrupts, self._time_here, self._placement = interrupts, is_time, placement
        self._largest = jax.jit(placement.largest_wish)
        self._stop, self._save = 0, False
        self._asked_to_save = False  # and it has not begun

    @property
    def stop_signal(self) -> signal.Signals | None:
        return signal.Signals(self._stop) if self._stop else None

    def wishes(self) -> Any:
        save = self._time_here is not None and not self._asked_to_save and self._time_here()
        self._asked_to_save = self._asked_to_save or save
        return self._placement.put_wish((self._interrupts.received or 0, save))

    def hear(self, answer: Any) -> None:
        stop, save = np.asarray(answer).tolist()
        self._stop, self._save = self._stop or stop, self._save or bool(save)

    def check(self) -> None:
        if self._stop:
            raise StopRequested

    def check_now(self) -> None:
        self.hear(self._largest(self.wishes()))
        self.check()

    def is_time(self) -> bool:
        return self._save

    def save_begins(self) -> None:
        self._save = self._asked_to_save = False
