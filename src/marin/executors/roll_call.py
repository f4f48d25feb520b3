"""What several hosts tell each other: that they are there, and small values.

Each host keeps one connection to host 0, which hands on what all of them gave. So host 0 sees at once when the process
of a host ends, and within ``SILENCE_SECONDS`` when its machine does, and tells the others, who see the same of host 0.
Libraries for computing on several hosts would wait, or abort, without saying for whom.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Self

import msgspec

from marin.errors import HostLostError
from marin.executors.host_line import BEAT_SECONDS, SILENCE_SECONDS, HostLine, arrived, called

LEAVE_SECONDS = 20.0
"""So long after another host is lost this process may take to end by itself; a collective operation may never do."""

PARTING_SECONDS = 10.0
"""So long host 0 waits for the others before it calls ``at_end``, and for news of why something failed."""

_LOOK_SECONDS = 0.1
"""So long the thread that listens waits for a message before it does its other work."""

_REMEDY = ". The others can't go on without it: start all hosts again, and they go on from what was saved"


class RollCall:
    """One host's end. Use it as a context, and ``come_together`` first.

    Leaving it by an error ends the others, unless ``end_together`` was called. ``ends_process``: where a host is lost,
    this process is ended if it does not end by itself.
    """

    def __init__(self, index: int, count: int, *, ends_process: bool = True) -> None:
        self.index, self.count = index, count
        self._is_over = False
        self._ends_process = ends_process
        self._news = deque[tuple[int, dict[str, Any]]]()
        self.at_end: Callable[[], None] = lambda: None
        """Called when this host leaves, of host 0 after all others have."""
        self._lines = dict[int, HostLine]()
        self._changed = threading.Condition()
        self._given = defaultdict[tuple[str, int], dict[int, Any]](dict)
        self._answers = dict[tuple[str, int], list[Any]]()
        self._asked = Counter[str]()
        self._gone = set[int]()
        self._lost: str | None = None
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._listen, name="the other hosts", daemon=True)

    def come_together(self, address: str, port: int, *, about: str, seconds: float, offer: Callable[[], int]) -> int:
        """Wait until all hosts are here; the number that ``offer`` gives host 0. Raises ``HostLostError``."""
        deadline = time.monotonic() + seconds
        if self.index == 0:
            self._lines = called(address, port, self.count, about, deadline, seconds)
        else:
            self._lines = {0: arrived(address, port, self.index, self.count, about, deadline, seconds)}
        self._watch.start()
        return self.exchange("service", offer() if self.index == 0 else None)[0]

    def exchange(self, topic: str, value: Any = None) -> list[Any]:
        """What each host gave for ``topic``, by their numbers: waits for all. Values are such that JSON can hold.

        All hosts ask for the same topics, in each topic as often. Raises ``HostLostError`` if one will not come.
        """
        value = msgspec.json.decode(msgspec.json.encode(value))  # the same form for this host as for the others
        with self._changed:
            key = topic, self._asked[topic]
            self._asked[topic] += 1
        if self.index:
            self._send(0, {"topic": topic, "number": key[1], "value": value})
            return self._wait_for(lambda: self._answers.pop(key, None))
        with self._changed:
            self._given[key][0] = value
        given = self._wait_for(lambda: self._given.pop(key) if len(self._given[key]) == self.count else None)
        everything = [given[host] for host in range(self.count)]
        for host in self._lines:
            self._send(host, {"topic": topic, "number": key[1], "value": everything})
        return everything

    def tell(self, news: dict[str, Any]) -> None:
        """From host 0 to all others, or from one of those to host 0. Waits for nobody."""
        self._tell_all({"news": news})

    def next_news(self, seconds: float) -> tuple[int, dict[str, Any]] | None:
        """What a host has told, and which one; ``None`` if nothing has come for so long. Raises ``HostLostError``."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._lost is not None, timeout=seconds)
            if self._news:
                return self._news.popleft()
            if self._lost is not None:
                raise HostLostError(self._lost)
            return None

    def end_together(self) -> None:
        """Note that all hosts know that this is the end, and why."""
        self._is_over = True

    def check(self) -> None:
        """Raise ``HostLostError`` if a host is lost, or has left."""
        with self._changed:
            if self._lost is not None:
                raise HostLostError(self._lost)
            if self._gone:
                raise HostLostError(f"host {min(self._gone)} of {self.count} has left")

    def why_lost(self) -> str | None:
        """Which host is lost and why, if one is; as it may not be known yet, this waits a little."""
        with self._changed:
            self._changed.wait_for(lambda: self._lost is not None, timeout=PARTING_SECONDS)
            return self._lost

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if fault is not None and not self._is_over:
                reason = f"host {self.index} of {self.count} failed: {type(fault).__name__}: {fault}"
                if self._lost is None or self.index:  # it may be that only this host misses the first one
                    self._tell_all({"lost": reason.removesuffix(_REMEDY)})
                self._lost = self._lost or reason
            self._part()
        finally:
            self._ended.set()
            if self._watch.ident is not None:
                self._watch.join()
            for line in self._lines.values():
                line.close()

    def _part(self) -> None:
        if self.index:
            if 0 not in self._gone:
                self.at_end()
            self._tell_all({"left": True})
            return
        with self._changed:
            self._changed.wait_for(lambda: self._gone >= self._lines.keys(), timeout=PARTING_SECONDS)
        self.at_end()

    def _wait_for(self, ready: Callable[[], Any]) -> Any:
        with self._changed:
            while True:
                if (found := ready()) is not None:
                    return found
                if self._lost is not None:
                    raise HostLostError(self._lost)
                self._changed.wait()

    def _send(self, host: int, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the thread that listens will see it, and say whose end that is
            self._lines[host].send(message)

    def _tell_all(self, message: dict[str, Any]) -> None:
        for host in self._lines:
            self._send(host, message)

    def _listen(self) -> None:
        """In a thread of its own, until the end."""
        beat_at, lost_at, looked_at = 0.0, None, time.monotonic()
        with selectors.DefaultSelector() as waiting:
            for host, line in self._lines.items():
                waiting.register(line.socket, selectors.EVENT_READ, host)
                line.heard_at = time.monotonic()  # nobody listened while others had yet to come
            while not self._ended.is_set():
                now = time.monotonic()
                self._excuse(now, now - looked_at)
                looked_at = now
                if now - beat_at >= BEAT_SECONDS:
                    beat_at = now
                    self._tell_all({})
                    self._check_silence(now)
                for key, _ in waiting.select(timeout=_LOOK_SECONDS):
                    if not self._hear(key.data):
                        waiting.unregister(key.fileobj)
                if self._lost is not None and self._ends_process:
                    lost_at = now if lost_at is None else lost_at
                    if now - lost_at >= LEAVE_SECONDS:
                        self._end_process()

    def _hear(self, host: int) -> bool:
        """Take in what has come from ``host``; whether more may come."""
        try:
            for message in self._lines[host].received():
                self._take(host, message)
        except (OSError, msgspec.DecodeError) as fault:
            if host not in self._gone and not self._is_over:
                self._lose(f"the process of host {host} of {self.count} ended ({fault})")
            with self._changed:
                self._gone.add(host)
                self._changed.notify_all()
            return False
        return True

    def _take(self, host: int, message: dict[str, Any]) -> None:
        if "lost" in message:
            self._lose(str(message["lost"]))
        with self._changed:
            if message.get("left"):
                self._gone.add(host)
            if "news" in message:
                self._news.append((host, message["news"]))
            if "topic" in message:
                key = message["topic"], message["number"]
                if self.index:
                    self._answers[key] = message["value"]
                else:
                    self._given[key][host] = message["value"]
            self._changed.notify_all()

    def _excuse(self, now: float, seconds: float) -> None:
        """So long nobody has listened here. If this process was stopped, that is no silence of the others."""
        if seconds >= BEAT_SECONDS + _LOOK_SECONDS:
            for line in self._lines.values():
                line.heard_at = min(line.heard_at + seconds, now)

    def _check_silence(self, now: float) -> None:
        for host, line in self._lines.items():
            if host not in self._gone and now - line.heard_at >= SILENCE_SECONDS:
                self._lose(f"host {host} of {self.count} has said nothing for {SILENCE_SECONDS:.0f} s")

    def _lose(self, reason: str) -> None:
        """The first reason counts."""
        with self._changed:
            if self._lost is not None:
                return
            self._lost = reason + _REMEDY
            self._changed.notify_all()
        # At once, and past all buffers: JAX may abort this process in the next moment.
        with contextlib.suppress(OSError):
            os.write(2, f"{self._lost}\n".encode())
        if self.index == 0:
            self._tell_all({"lost": reason})

    def _end_process(self) -> NoReturn:
        text = f"this host did not end by itself for {LEAVE_SECONDS:.0f} s after that, and is ended\n"
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            os.write(2, text.encode())
        os._exit(1)
