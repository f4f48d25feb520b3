"""Bring files here: each goes on where an earlier attempt was cut, also one of another process, and is checked.

What sends the bytes is an ``Origin``: a repository of the hub, a web server, an object store.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar, final

import msgspec

from marin.errors import DataError, NotEnoughResourcesError
from marin.execution.progress import report
from marin.processing.durable import read_remembered
from marin.processing.origins import Answer, Origin, OutOfRange, UnplacedPart
from marin.processing.retrying import PassingFault, Retries, Stopped, retried
from marin.storage.faults import translated_faults
from marin.storage.folder import lock_folder, unlock_folder

_LOG = logging.getLogger(__name__)
_LOCK_SECONDS = 5.0
"""How long another download into the same folder is waited for: one that is about to end has gone by then."""

AT_ONCE = 4
"""Files that travel at the same time: one connection seldom fills a line, many are turned away."""

T = TypeVar("T")


@final
class Tally:
    """How many bytes of all have arrived, reported from whichever thread."""

    def __init__(self, total: float) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def add(self, count: int, note: str) -> None:
        with self._lock:
            self._done += count
            report(self._done / 1e6, max(self._total, self._done) / 1e6, "MB", note)

    def say(self, note: str) -> None:
        self.add(0, note)


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """What the bytes that have arrived are a part of."""

    shown: str
    validator: str | None
    size: int | None


@final
class Transfer:
    """One file on its way to ``path``, which is whole when ``run`` has returned and a prefix of it before.

    ``size`` is that of the whole, where it is known; ``size_now`` asks for it anew when the bytes that come contradict
    it. ``fault_of`` says what is wrong with the content of a file, ``remedy`` what to do if that is so twice.
    """

    def __init__(
        self,
        origin: Origin,
        path: str,
        *,
        size: int | None = None,
        size_now: Callable[[], int | None] | None = None,
        fault_of: Callable[[str], str | None] | None = None,
        remedy: str = "Something on the way changes it, or it is damaged there: tell its owner",
        tally: Tally | None = None,
    ) -> None:
        self._origin = origin
        self._path = path
        self._memory = f"{path}.begun"
        self._size = size
        self._size_now = size_now
        self._doubted = False
        self._fault_of = fault_of
        self._remedy = remedy
        self._tally = tally or Tally(size or 0)
        self._stop = threading.Event()
        self._furthest = self._counted = 0

    def run(self, retries: Retries, stop: threading.Event | None = None) -> None:
        """Raises ``GaveUp``, ``Stopped``, a ``StoreError`` of the disk, and ``DataError`` for a file damaged twice."""
        self._stop = stop or self._stop
        fault = self._once(retries)
        if fault is not None:
            _LOG.warning("%s arrived damaged: %s; fetching it once more", self._origin.shown, fault)
            fault = self._once(retries)
        if fault is not None:
            raise DataError(
                f"{self._origin.shown} arrived damaged twice: {fault}. Nothing of it is kept. {self._remedy}"
            )
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._memory)

    def _once(self, retries: Retries) -> str | None:
        shown = self._origin.shown
        name = os.path.basename(shown)
        self._furthest = 0
        retried(
            self._fetch,
            retries,
            what=shown,
            stop=self._stop,
            arrived=lambda: self._furthest,
            tell=lambda note: self._tally.say(f"{name}: {note}"),
        )
        fault = None if self._fault_of is None else self._fault_of(self._path)
        if fault is not None:
            self._discard()
        return fault

    def _fetch(self) -> None:
        if self._doubted and self._size_now is not None:
            self._size, self._doubted = self._size_now(), False
        whole = False
        while not whole:
            begun, start = self._begun()
            if begun is not None and begun.size is not None and start == begun.size:
                break
            try:
                with self._origin.open(start, begun.validator if begun else None) as answer:
                    whole = self._receive(answer, begun, start)
            except OutOfRange as refused:
                # Of another size than it had, it is another file, and what has arrived is no part of it.
                if begun is not None and begun.size is None and refused.size == start:
                    break
                raise self._anew("what has arrived is no part of what is there now", start) from refused
            except UnplacedPart as fault:
                raise self._anew(str(fault), start) from fault
        self._count(os.path.getsize(self._path))

    def _anew(self, reason: str, start: int) -> PassingFault:
        """To be raised: the next try begins at the first byte, and at once if this one did not."""
        self._discard()
        return PassingFault(reason, asked=0.0 if start else None)

    def _begun(self) -> tuple[_Begun | None, int]:
        """What has arrived, by this attempt or an earlier one, and its bytes; none if nothing can go on from it."""
        begun = read_remembered(self._memory, _Begun)
        if begun is None or not os.path.exists(self._path):
            return None, 0
        start = os.path.getsize(self._path)
        # Without a validator only a check of the content can tell whether two parts fit together.
        resumable = begun.validator is not None or self._fault_of is not None
        too_long = begun.size is not None and start > begun.size
        of_another = None not in (begun.size, self._size) and begun.size != self._size
        if not resumable or too_long or of_another or begun.shown != self._origin.shown:
            self._discard()
            return None, 0
        self._count(start)
        return begun, start

    def _receive(self, answer: Answer, begun: _Begun | None, asked: int) -> bool:
        """Whether the file is whole now."""
        if answer.start not in (0, asked):
            raise self._anew(f"bytes from {asked:,} on were asked for, and those from {answer.start:,} on came", asked)
        size = answer.size if answer.size is not None else self._size
        if answer.start and begun is not None and (answer.validator, size) != (begun.validator, begun.size):
            raise self._anew("it has changed on the server in the meantime", asked)
        if answer.start == 0:
            self._discard()
            self._compare(answer.size)
            if size is not None:
                check_room(os.path.dirname(self._path), size)
            memory = _Begun(shown=self._origin.shown, validator=answer.validator, size=size)
            # Not made durable: one that is torn or lost costs a start from the beginning.
            with translated_faults(self._memory, writing=True), open(self._memory, "wb") as file:
                file.write(msgspec.json.encode(memory))
        announced = answer.end if answer.end is not None else size
        end = self._write(answer, announced)
        if announced is not None and end < announced:
            self._doubted = answer.end is None
            raise PassingFault(f"the connection ended after {end:,} of {announced:,} bytes")
        return answer.end is None if size is None else end >= size

    def _compare(self, announced: int | None) -> None:
        """The size that is announced with the bytes, against what is known of it."""
        if announced is None or self._size in (None, announced):
            return
        if self._fault_of is None and self._size_now is not None:
            self._doubted = True
            raise PassingFault(
                f"the server has said that it has {self._size:,} bytes, and sends {announced:,}",
                remedy="check the URL, or try again later",
            )
        self._size = announced  # the check of the content decides

    def _write(self, answer: Answer, announced: int | None) -> int:
        end = answer.start
        with translated_faults(self._path, writing=True), open(self._path, "r+b" if end else "wb") as file:
            file.seek(end)
            file.truncate()
            for chunk in answer.chunks:
                if announced is not None and end + len(chunk) > announced:
                    self._doubted = True
                    raise self._anew(f"more than the {announced:,} bytes that were announced came", answer.start)
                file.write(chunk)
                file.flush()  # what the system has survives the end of this process
                end += len(chunk)
                # Bytes that have come before are no progress: of a server without ranges, they come with each try.
                self._furthest = max(self._furthest, end)
                self._count(end)
                if self._stop.is_set():
                    raise Stopped
        return end

    def _discard(self) -> None:
        for path in (self._path, self._memory):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._count(0)

    def _count(self, here: int) -> None:
        self._tally.add(here - self._counted, os.path.basename(self._origin.shown))
        self._counted = here


def partial_path(folder: str, name: str) -> str:
    """Where the file that will be called ``name`` lies in ``folder`` while it is on its way."""
    return os.path.join(folder, hashlib.sha256(name.encode()).hexdigest()[:32])


def arrived_bytes(path: str) -> int:
    """Bytes of the file at ``path``; 0 if there is none."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def check_room(folder: str, needed: int, *, what: str = "the file") -> None:
    """Raise ``NotEnoughResourcesError`` unless the disk of ``folder`` has ``needed`` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise NotEnoughResourcesError(
            f"{folder}: {what} needs {needed:,} bytes, and {free:,} are free there: "
            "free some space, or choose another store with --prefix. What has arrived is kept"
        )


@contextlib.contextmanager
def alone_in(folder: str) -> Generator[None, None, None]:
    """Makes ``folder`` and holds its lock, so that no two downloads write the same file.

    Raises ``StoreBusyError`` if another one has it.
    """
    with translated_faults(folder, writing=True):
        os.makedirs(folder, exist_ok=True)
        held = lock_folder(folder, exclusive=True, timeout=_LOCK_SECONDS)
    try:
        yield
    finally:
        if held is not None:
            unlock_folder(held)


def together(jobs: Sequence[Callable[[threading.Event], T]], *, at_once: int = AT_ONCE) -> list[T]:
    """What the jobs return, in their order. The first that fails sets the event for the others, and is raised."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        # The context of the caller: there a step has its progress.
        futures = [pool.submit(contextvars.copy_context().run, job, stop) for job in jobs]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            if not all(future.done() and future.exception() is None for future in futures):
                stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    faults = [fault for future in futures if not future.cancelled() and (fault := future.exception()) is not None]
    for fault in sorted(faults, key=lambda fault: isinstance(fault, Stopped)):
        raise fault
    return [future.result() for future in futures]
