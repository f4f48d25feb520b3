"""The thread that keeps the leases of this process alive, and notices that somebody wants a step to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, final

from marin.execution.held_record import HeldRecord

LOOK_SECONDS = 1.0
"""How soon a request to stop a step is noticed."""


class _Callbacks(NamedTuple):
    renewed: Callable[[], None]
    stopped: Callable[[], None]


@final
class _Kept:
    """A lease that is renewed while inside. Not a generator: it is entered for each step."""

    __slots__ = ("_callbacks", "_held", "_keeper")

    def __init__(self, keeper: LeaseKeeper, held: HeldRecord, callbacks: _Callbacks) -> None:
        self._keeper, self._held, self._callbacks = keeper, held, callbacks

    def __enter__(self) -> None:
        self._keeper.begin(self._held, self._callbacks)

    def __exit__(self, *_: object) -> None:
        self._keeper.end(self._held)


class LeaseKeeper:
    """Renews the leases that this process holds, each at a third of its term, from one thread."""

    def __init__(self, ttl_seconds: float) -> None:
        """``ttl_seconds``: the shortest term among the leases to keep."""
        self._idle_seconds = min(ttl_seconds / 6, LOOK_SECONDS)
        self._held: dict[HeldRecord, _Callbacks] = {}
        self._looked_at = time.monotonic()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def keep(
        self,
        held: HeldRecord,
        renewed: Callable[[], None] = lambda: None,
        stopped: Callable[[], None] = lambda: None,
    ) -> AbstractContextManager[None]:
        """Renew ``held`` while inside; ``renewed`` is called after each renewal that succeeded.

        ``stopped`` is called once somebody has asked to stop, and again until the lease is not held any more.
        """
        return _Kept(self, held, _Callbacks(renewed, stopped))

    def begin(self, held: HeldRecord, callbacks: _Callbacks) -> None:
        with self._changed:
            self._held[held] = callbacks
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="marin-leases", daemon=True)
                self._thread.start()

    def end(self, held: HeldRecord) -> None:
        with self._changed:
            del self._held[held]

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _loop(self) -> None:
        while (due := self._wait_for_due()) is not None:
            for held, callbacks in due:
                if held.renew():
                    callbacks.renewed()
            self._look()

    def _look(self) -> None:
        """Now and then, see whether somebody wants a step to end."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        with self._changed:
            alive = [(held, callbacks) for held, callbacks in self._held.items() if not held.is_lost]
        for held, callbacks in alive:
            held.look()
            if held.attempt.stop is not None:
                callbacks.stopped()
        self._looked_at = time.monotonic()

    def _wait_for_due(self) -> list[tuple[HeldRecord, _Callbacks]] | None:
        """Those whose renewal is due, perhaps none; None when stopped."""
        with self._changed:
            if self._stopped:
                return None
            now = time.monotonic()
            alive = [(held, callbacks) for held, callbacks in self._held.items() if not held.is_lost]
            if due := [pair for pair in alive if pair[0].next_renewal <= now]:
                return due
            # A lease that is taken meanwhile is due a third of its term later: this is soon enough to see it,
            # and spares each short step a wake-up of this thread.
            self._changed.wait(min([held.next_renewal - now for held, _ in alive] + [self._idle_seconds]))
            return None if self._stopped else []
