"""The record of an artifact while this process holds its lease."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar

import msgspec

from marin.errors import (
    LeaseLostError,
    RecordError,
    StepStoppedError,
    StorageFullError,
    StoreError,
    StoreReadOnlyError,
)
from marin.execution.ambient import setting
from marin.execution.identity import ArtifactId
from marin.execution.record import (
    Attempt,
    Build,
    Lease,
    Record,
    State,
    StopRequest,
    decode_record,
    encode_record,
    record_path,
)
from marin.storage.store import BuildStore

_GIVEN_UP: set[str] = set()
"""Nonces of leases of this process that nobody works under any more, but whose record could not be told so."""


WORKING_UNDER_VARIABLE = "MARIN_WORKING_UNDER"
"""Tells the process of a step under whose leases it works: nonces, joined by commas."""

_WORKING_UNDER: ContextVar[frozenset[str]] = ContextVar("marin_working_under", default=frozenset())


def working_under(lease: Lease) -> AbstractContextManager[None]:
    """Inside, and in runs that are started inside, ``is_around_us`` knows ``lease``."""
    return setting(_WORKING_UNDER, _WORKING_UNDER.get() | {lease.nonce})


def is_around_us(lease: Lease) -> bool:
    """Whether the caller is part of the work that is done under ``lease``, and so would wait for itself."""
    return lease.nonce in nonces_around_us()


def nonces_around_us() -> frozenset[str]:
    """Of the leases that the caller works under, in this process or as a step's own process."""
    inherited = os.environ.get(WORKING_UNDER_VARIABLE, "")
    return _WORKING_UNDER.get() | frozenset(nonce for nonce in inherited.split(",") if nonce)


def is_given_up(lease: Lease) -> bool:
    """Whether this process has ended its work under ``lease`` without a word in the record."""
    return lease.nonce in _GIVEN_UP


def stopped(id_: ArtifactId, request: StopRequest) -> StepStoppedError:
    """What a step raises that somebody has stopped, and what others raise that waited for it."""
    remedy = "A new run builds it; a resumable step goes on from what it has saved"
    return StepStoppedError(f"{id_} was stopped by {request.by} at {request.at}. {remedy}")


class HeldRecord:
    """A record that says ``building``, by us. Every change is a compare-and-swap against what we wrote last.

    Whoever takes the lease over changes the file, and from then on every change of ours fails: a builder that lost
    its lease can't publish, however late it wakes up.
    """

    def __init__(
        self,
        store: BuildStore,
        record: Record,
        attempt: Attempt,
        raw: bytes,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._path = record_path(record.id.address)
        self._record = record
        self._raw = raw
        self._lock = threading.Lock()
        self.attempt = attempt
        self.renewed = self._clock()
        self.next_renewal = self.renewed + self.ttl_seconds / 3
        self.is_lost = False
        self.fault: StoreError | OSError | None = None
        """Why the last renewal failed; None once one has succeeded."""

    @property
    def id(self) -> ArtifactId:
        return self._record.id

    @property
    def kept(self) -> Build | None:
        """The previous build, which is served meanwhile."""
        return self._record.build

    @property
    def ttl_seconds(self) -> float:
        return self.attempt.lease.ttl_seconds

    def renew(self) -> bool:
        """Show that we live. False: not renewed, as the lease is lost or the store can't be written at the moment."""
        with self._lock:
            lease = msgspec.structs.replace(self.attempt.lease, beat=self.attempt.lease.beat + 1)
            attempt = msgspec.structs.replace(self.attempt, lease=lease)
            # Soon again, should the store fail now: one bad moment must not cost the lease.
            self.next_renewal = self._clock() + self.ttl_seconds / 10
            try:
                return self._swap(msgspec.structs.replace(self._record, attempt=attempt), attempt)
            except (StoreError, OSError) as fault:
                self.fault = fault
        return False

    def look(self) -> None:
        """Notice a request to stop that somebody has written into the record."""
        with self._lock, contextlib.suppress(StoreError, OSError):
            if not self.is_lost and (there := self._store.read(self._path)) is not None and there != self._raw:
                self._adopt(there)

    def begin_again(self, attempt: Attempt) -> bool:
        """Go on under the same lease with ``attempt``, which has a build id of its own. False: the lease is lost."""
        with self._lock:
            lease = msgspec.structs.replace(self.attempt.lease, beat=self.attempt.lease.beat + 1)
            attempt = msgspec.structs.replace(attempt, lease=lease, stop=self.attempt.stop)
            return self._swap(msgspec.structs.replace(self._record, attempt=attempt), attempt)

    def publish(self, build: Build, moved_from: str | None) -> None:
        """Make ``build`` the artifact. ``moved_from``: the folder whose entries move up to the address first.

        Raises ``LeaseLostError``; nothing has been moved then.
        """
        record = msgspec.structs.replace(self._record, state=State.BUILT, build=build, attempt=None)
        raw = encode_record(record)

        def swap(ours: bytes) -> bool:
            if moved_from is None:
                return self._store.compare_and_swap(self._path, ours, raw)
            return self._store.publish(self._path, ours, raw, moved_from)

        with self._lock:
            done = self._settled(swap, raw)
            self.is_lost = True  # whatever happened, there is nothing of ours to renew or to fail any more
            if not done:
                raise self.lost()

    def fail(self, error: str, frame: str | None, log: str | None) -> bool:
        """Record that the attempt failed. False: the lease was lost before, and the record is somebody else's."""
        attempt = msgspec.structs.replace(self.attempt, error=error, frame=frame, log=log)
        record = msgspec.structs.replace(self._record, state=State.FAILED, attempt=attempt)
        with self._lock:
            done = not self.is_lost and self._exchanged(encode_record(record))
            self.is_lost = True
            return done

    def give_up(self) -> None:
        """End the work under the lease, whatever the record says: later runs of this process need not wait for it."""
        if not self.is_lost:
            self.is_lost = True
            _GIVEN_UP.add(self.attempt.lease.nonce)

    def _swap(self, record: Record, attempt: Attempt) -> bool:
        if self.is_lost:
            return False
        raw = encode_record(record)
        if not self._exchanged(raw):
            self.is_lost = True
            return False
        # A request to stop that came while we wrote is not lost: the next writing has it again.
        self.attempt = msgspec.structs.replace(attempt, stop=self.attempt.stop)
        self._raw, self._record, self.fault = raw, record, None
        self.renewed = self._clock()
        self.next_renewal = self.renewed + self.ttl_seconds / 3
        return True

    def _exchanged(self, raw: bytes) -> bool:
        return self._settled(lambda ours: self._store.compare_and_swap(self._path, ours, raw), raw)

    def _settled(self, swap: Callable[[bytes], bool], raw: bytes) -> bool:
        """Whether ``swap``, which puts ``raw`` in place of what we wrote last, is done. False: the lease is lost.

        A store may fail when its work is done, such as a disk at the last fsync: what lies there now decides, and what
        has our nonce is ours. Raises ``StoreError`` if it is not done and the lease still ours.
        """
        while True:
            try:
                if swap(self._raw):
                    return True
            except StoreError:
                if self._store.read(self._path) != raw:
                    raise
            there = self._store.read(self._path)
            if there == raw:
                return True
            if there is None or there == self._raw or not self._adopt(there):
                return False

    def _adopt(self, raw: bytes) -> bool:
        """Whether ``raw``, which is not what we wrote last, is our record all the same. Takes over what was added."""
        try:
            record = decode_record(raw, self._path, of=self.id)
        except RecordError:
            return False
        if record.attempt is None or record.attempt.lease.nonce != self.attempt.lease.nonce:
            return False
        if record.attempt.stop is not None:
            self.attempt = msgspec.structs.replace(self.attempt, stop=record.attempt.stop)
        if record.state is not State.BUILDING:
            return False  # we were silent, and one who waited has recorded that we were stopped
        self._raw = raw
        return True

    def lost(self) -> LeaseLostError:
        """What to raise when the lease is lost."""
        return LeaseLostError(f"{self.id}: {self._why_lost()}; what it made was not published")

    @property
    def is_hopeless(self) -> bool:
        """Whether the lease could not be renewed for a reason that a new attempt would meet as well."""
        return isinstance(self.fault, StorageFullError | StoreReadOnlyError)

    def _why_lost(self) -> str:
        if self.fault is not None:
            return f"this run could not renew its lease: {self.fault}"
        with contextlib.suppress(StoreError, OSError):
            there = self._store.read(self._path)
            if there is None:
                return f"its record {self._path} was removed by somebody while it was built"
            attempt = decode_record(there, self._path).attempt
            # Who takes over counts on from our term.
            if attempt is not None and attempt.lease.term <= self.attempt.lease.term:
                return f"its record {self._path} was removed or replaced by somebody while it was built"
        return f"this builder was silent for more than {self.ttl_seconds:g} s and lost its lease to another"
