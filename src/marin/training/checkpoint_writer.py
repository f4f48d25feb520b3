"""Saves a training beside its steps: the training waits only while its arrays are copied to the host."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self

from marin.training.arrays import host_copy, named_arrays
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.tensor_file import NamedArrays

TOLD_SECONDS = 1.0
"""If the training has waited so long for a save, the log says so."""

SLOW_SECONDS = 60.0
"""A save that takes longer, and longer than the time between two, is told in the log: a disk that hangs is seen."""

_LOG = logging.getLogger(__name__)


class Checkpoints(Protocol):
    """Where states are kept: ``RollingCheckpoints``, or something around one."""

    @property
    def newest_step(self) -> int | None:
        """The step of the newest complete one."""
        ...

    def has_permanent(self, step: int) -> bool:
        """Whether that state is kept for good already."""
        ...

    def save(self, step: int, arrays: NamedArrays, *, permanent: bool, before_marking: Callable[[], None]) -> str:
        """Keep ``arrays``: the path."""
        ...

    def describe_newest(self) -> str:
        """The newest complete one, for messages."""
        ...


class CheckpointWriter:
    """Decides when the state is saved, and does it in a thread of its own. Used as a context of the training.

    One save at a time: a rolling one that falls due meanwhile is made as soon as the one under way is done; for a
    permanent one, which belongs to its step, the training waits. What a save failed with is raised by the next call
    of ``due``, ``save`` or ``finish``, as if it had been made there.

    The thread is a daemon: it ends with the process, whatever the disk does. Leaving the context by an error waits for
    the save under way; by Ctrl-C or SIGTERM it does not.

    ``copy`` copies a state to host arrays, into those of an earlier copy if it can; it is called in the training's own
    thread. ``canonical`` turns the tree of host arrays into that which is saved (unstacks layers, say);
    ``before_marking`` makes durable what must not be behind the checkpoint (the metrics). Both are called there.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        policy: CheckpointPolicy,
        *,
        copy: Callable[[Any, Any], Any] = lambda state, reuse: host_copy(state, reuse=reuse),
        canonical: Callable[[Any], Any] = lambda tree: tree,
        before_marking: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoints, self._policy = checkpoints, policy
        self._copy_state, self._canonical = copy, canonical
        self._before_marking, self._clock = before_marking, clock
        self._saved_at = clock()
        self._under_way: Future[str] | None = None
        self._copy: Any = None  # what was saved last
        self._step = 0  # of the one under way
        self._told = False  # that it is slow

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, (Exception, SystemExit)):  # not at Ctrl-C
            self._settle()

    def due(self, step: int, *, last: bool, is_time: Callable[[], bool] | None = None) -> bool:
        """Whether to save the state after ``step`` updates now; if it is the ``last``, only to keep it for good.

        To be asked after each step; costs next to nothing. ``is_time`` replaces this writer's own.
        """
        if self._under_way is not None and self._under_way.done():
            self.finish()
        if self._must_stay(step):
            return True
        if last:
            return False
        return (is_time or self.is_time)() and step not in (0, self._checkpoints.newest_step)

    def is_time(self) -> bool:
        """Whether the time between two rolling ones is over, and the one before is done."""
        seconds = self._clock() - self._saved_at
        if self._under_way is not None and not self._under_way.done():
            self._tell_if_slow(seconds)
            return False
        return seconds >= self._policy.seconds

    def save(self, step: int, state: Any) -> None:
        """Copy ``state`` and begin to write it; a later step may consume it."""
        if self._under_way is not None:
            began = self._clock()
            self.finish()
            if (waited := self._clock() - began) >= TOLD_SECONDS:
                _LOG.warning(
                    "step %d waited %.1f s until the save before was done: the disk is slow for checkpoints this "
                    "frequent; set every= or seconds= of CheckpointPolicy higher",
                    step,
                    waited,
                )
        self._begin(step, state)

    def save_now(self, step: int, state: Any) -> str:
        """Save ``state`` and wait until it is on the disk: the path. A failure of the save before is only logged."""
        self._settle()
        if step != self._checkpoints.newest_step or self._must_stay(step):
            self._begin(step, state)
            self.finish()
        return self._checkpoints.describe_newest()

    def finish(self) -> None:
        """Wait for the save under way, if any, and raise what it failed with."""
        if (under_way := self._under_way) is not None:
            under_way.exception()  # if a signal ends the waiting, it is still under way
            self._under_way = None
            under_way.result()

    def describe_newest(self) -> str:
        """Where the newest complete one lies once the save under way is done, for messages."""
        self._settle()
        return self._checkpoints.describe_newest()

    def _settle(self) -> None:
        try:
            self.finish()
        except Exception as fault:  # noqa: BLE001  # another error, or another save, is on its way
            _LOG.warning("%s", fault)

    def _tell_if_slow(self, seconds: float) -> None:
        if not self._told and seconds >= max(SLOW_SECONDS, self._policy.seconds):
            self._told = True
            _LOG.warning(
                "the state of step %d is still being written after %.0f s: until then a kill costs all since %s",
                self._step,
                seconds,
                self._checkpoints.describe_newest(),
            )

    def _must_stay(self, step: int) -> bool:
        if not self._policy.is_permanent(step) or self._checkpoints.has_permanent(step):
            return False
        return self._under_way is None or self._step != step

    def _begin(self, step: int, state: Any) -> None:
        permanent = self._must_stay(step)
        self._saved_at = self._clock()
        # Nobody writes from the copy before: that save is done. Memory that was used before is much faster to fill.
        tree = self._copy = self._copy_state(state, self._copy)
        done = Future[str]()

        def work() -> None:
            try:
                arrays = named_arrays(self._canonical(tree))
                path = self._checkpoints.save(step, arrays, permanent=permanent, before_marking=self._before_marking)
            except BaseException as fault:  # noqa: BLE001  # raised where the training waits for it
                done.set_exception(fault)
            else:
                done.set_result(path)

        self._under_way, self._step, self._told = done, step, False
        threading.Thread(target=work, name=f"checkpoint of step {step}", daemon=True).start()
