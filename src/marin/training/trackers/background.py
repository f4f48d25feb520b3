"""One tracker in a thread of its own, so that nothing it does can harm or hold up the training."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from marin.execution.redaction import redact_text, secret_values
from marin.training.trackers.tracker import Abandonable, Tracker

QUEUE_ROWS = 10_000
"""How many rows wait for a slow tracker, at most; about 10 MB. What comes then is dropped and counted."""

DELIVERY_SECONDS = 1.0
"""How often waiting rows are delivered. Together, so that the thread seldom takes the interpreter from the training."""

_LOG = logging.getLogger(__name__)


class BackgroundTracker:
    """Hands rows to a tracker, which its thread opens with ``open_tracker``. Never raises, never waits but to close."""

    def __init__(
        self,
        name: str,
        open_tracker: Callable[[], Tracker],
        *,
        queue_rows: int = QUEUE_ROWS,
        delivery_seconds: float = DELIVERY_SECONDS,
    ) -> None:
        self._name, self._open_tracker = name, open_tracker
        self._queue_rows, self._delivery_seconds = queue_rows, delivery_seconds
        self._rows: deque[Mapping[str, Any]] = deque()
        self._tracker: Tracker | None = None
        self._given = self._dropped = self._refused = 0  # the last one is counted by the thread, the others are not
        self._closing = threading.Event()
        # A daemon: if it hangs, the process ends without it.
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, row: Mapping[str, Any]) -> None:
        """Leave ``row`` for the thread: below a microsecond."""
        self._given += 1
        if len(self._rows) < self._queue_rows and self._thread.is_alive():
            self._rows.append(row)
            return
        self._dropped += 1
        if self._dropped == 1 and self._thread.is_alive():
            self._warn(f"can't keep up: {self._queue_rows:,} rows wait for it, and new ones are dropped")

    def begin_close(self) -> None:
        """Let the thread deliver what is there and end. Does not wait."""
        self._closing.set()

    def end_close(self, deadline: float) -> None:
        """Wait until ``deadline``, of ``time.monotonic``, and no longer; then tell how many rows are lost."""
        self._closing.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._warn("did not end in time and is left behind")
            self._abandon()
        if lost := self._dropped + self._refused + len(self._rows):
            self._warn(f"did not get {lost:,} of {self._given:,} rows")

    def _work(self) -> None:
        try:
            self._tracker = self._open_tracker()
        except BaseException as fault:  # noqa: BLE001  # also SystemExit, with which some libraries end
            self._warn(f"could not be opened ({_told(fault)}) and is left out")
            return
        while not self._closing.wait(self._delivery_seconds):
            self._deliver(self._tracker)
        self._deliver(self._tracker)
        try:
            self._tracker.close()
        except BaseException as fault:  # noqa: BLE001
            self._warn(f"failed to close ({_told(fault)})")

    def _deliver(self, tracker: Tracker) -> None:
        while self._rows:
            row = self._rows.popleft()
            try:
                tracker.log(dict(row))  # its own: the training and the other trackers go on with this one
            except BaseException as fault:  # noqa: BLE001
                # The next row is tried all the same: an outage of an hour should cost the rows of an hour.
                self._refused += 1
                if self._refused == 1:
                    self._warn(f"failed to take the row of step {row.get('step')} ({_told(fault)}); told once")

    def _abandon(self) -> None:
        tracker = self._tracker
        try:
            if isinstance(tracker, Abandonable):
                tracker.abandon()
        except BaseException as fault:  # noqa: BLE001
            self._warn(f"failed to be abandoned ({_told(fault)})")

    def _warn(self, what: str) -> None:
        text = redact_text(f"tracker {self._name} {what}", secret_values(os.environ))
        _LOG.warning("%s. The training is not touched by it; all rows are in metrics.jsonl", text)


def _told(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
