"""Getting the lease of an artifact: taking it, waiting for whoever has it, taking it over from the dead."""

from __future__ import annotations

import contextlib
import datetime
import os
from dataclasses import dataclass

import msgspec

from marin.errors import AddressOccupiedError, CorruptRecordError, NestedArtifactError, StepError, StoreError
from marin.execution.graph import Step
from marin.execution.held_record import HeldRecord, is_around_us, is_given_up, stopped
from marin.execution.observe import check_data
from marin.execution.partial_work import leftover, prepare_folder
from marin.execution.record import (
    Attempt,
    Build,
    Lease,
    Record,
    State,
    StopRequest,
    build_folder,
    decode_record,
    encode_record,
    new_build_id,
    record_path,
    timestamp,
)
from marin.execution.run_state import RunState, Stopped
from marin.storage.owner import SilenceWatch, describe, is_dead_here, this_process
from marin.storage.store import STRAY_PREFIX, is_data

POLL_SECONDS = 0.1
"""How often a waiting process looks at the record of what another one builds."""


def take_or_wait(run: RunState, step: Step) -> HeldRecord | Build:
    """The lease; or the build of another process that we waited for."""
    watch = SilenceWatch()
    told: str | None = None
    waited = _Waited()
    is_new = step.id in run.unrecorded
    while True:
        if run.stop.is_set():
            raise Stopped
        raw, record = (None, None) if is_new else _read(run, step)
        is_new = False  # if somebody is faster, the next look tells
        if record is not None and record.build is not None and not step.id.is_mutable:
            check_data(run.store, record, record.build)
            return record.build
        ended = record.attempt if record is not None and record.state is State.FAILED else None
        if ended is not None and ended.stop is not None and ended.lease.nonce == waited.nonce:
            # Who stops a step does not want the next one that waits for it to begin it anew.
            raise stopped(step.id, ended.stop)
        holder = (
            record.attempt.lease if record is not None and record.state is State.BUILDING and record.attempt else None
        )
        if holder is not None and is_around_us(holder):
            raise StepError(
                f"{step.id} is being made by the step that asks for it, which would wait for itself: "
                "name what it reads in deps=(...), and do not run it inside"
            )
        if (
            holder is None
            or is_given_up(holder)
            or is_dead_here(holder.owner)
            or watch.expired(raw or b"", holder.ttl_seconds)
        ):
            if holder is not None and record is not None and raw is not None:
                _end_if_stopped(run, step, raw, record, waited)
                gone = is_given_up(holder) or is_dead_here(holder.owner)
                how = "is gone" if gone else f"has been silent for more than {holder.ttl_seconds:g} s"
                run.reporter.noted(step.id, f"takes over from {describe(holder.owner)}, which {how}")
            with run.taking(step.id):
                held = _take(run, step, raw, record)
                if held is not None:
                    run.held[step.id] = held
                    return held
            continue
        waited.see(record)
        if (name := describe(holder.owner)) != told:
            run.reporter.waiting(step.id, holder=name)
            told = name
        run.stop.wait(POLL_SECONDS)


@dataclass
class _Waited:
    """For whom we wait. ``came_after``: the request to stop that was there before us, so that we are to build it."""

    nonce: str | None = None
    came_after: StopRequest | None = None

    def see(self, record: Record | None) -> None:
        if record is not None and record.attempt is not None and record.attempt.lease.nonce != self.nonce:
            self.nonce, self.came_after = record.attempt.lease.nonce, record.attempt.stop


def _end_if_stopped(run: RunState, step: Step, raw: bytes, record: Record, waited: _Waited) -> None:
    """Raise if it was stopped while we waited, and record it for its builder, who is gone and can't do so."""
    attempt = record.attempt
    if attempt is None or attempt.stop in (None, waited.came_after) or attempt.lease.nonce != waited.nonce:
        return
    request = attempt.stop
    assert request is not None
    attempt = msgspec.structs.replace(attempt, error=f"stopped by {request.by}")
    ended = msgspec.structs.replace(record, state=State.FAILED, attempt=attempt)
    if run.store.compare_and_swap(record_path(step.id.address), raw, encode_record(ended)):
        raise stopped(step.id, request)


def _read(run: RunState, step: Step) -> tuple[bytes | None, Record | None]:
    path = record_path(step.id.address)
    raw = run.store.read(path)
    if raw is None:
        return None, None
    try:
        return raw, decode_record(raw, run.store.url(path), of=step.id)
    except CorruptRecordError as torn:
        run.reporter.noted(step.id, f"{torn}; it is replaced")
        return raw, None


def _take(run: RunState, step: Step, raw: bytes | None, record: Record | None) -> HeldRecord | None:
    """Write ``building`` over what was read. None: somebody else was faster."""
    address = step.id.address
    now = datetime.datetime.now(datetime.UTC)
    before = record.attempt if record is not None else None
    fingerprint = step.fingerprint()
    random = os.urandom(12).hex()
    attempt = Attempt(
        build_id=new_build_id(now, random[:8]),
        takes_over=None if before is None else leftover(run, step, before),
        fingerprint_scheme=fingerprint.scheme,
        fingerprint_digest=fingerprint.digest,
        started=timestamp(now),
        inputs=run.inputs(step),
        lease=Lease(
            owner=this_process(),
            nonce=random[8:],
            term=before.lease.term + 1 if before is not None else 1,
            ttl_seconds=run.options.lease_seconds,
        ),
    )
    new = Record(
        name=step.id.name,
        version=step.id.version,
        state=State.BUILDING,
        build=record.build if record is not None else None,
        attempt=attempt,
    )
    encoded = encode_record(new)
    path = record_path(address)
    if raw is None:
        if strays := [name for name in run.store.list(address) if is_data(name.rstrip("/"))]:
            if run.store.read(path) is not None:
                return None
            raise _occupied(run, step, strays)
        _check_nesting(run, step)
    try:
        if raw is None:
            taken = run.store.compare_and_swap(path, None, encoded)
        else:
            # Clears what a killed writer has left. Strays are a publisher's that was killed after it had begun to move
            # the data up: back with it, into its own folder.
            folder = f"{address}/{STRAY_PREFIX}{attempt.build_id}"
            if before is not None:
                folder = build_folder(address, before.build_id)
            taken = run.store.unpublish(path, raw, encoded, folder)
    except StoreError:
        # A disk may fail when all is done, at the last fsync: then the lease is ours, and others would wait for us.
        if run.store.read(path) != encoded:
            raise
        taken = True
    if not taken:
        return None
    held = HeldRecord(run.store, new, attempt, encoded)
    try:
        prepare_folder(run, step, held, is_first=before is None)
    except BaseException as fault:
        # Nobody is to wait for us: a lease that nobody works under would be silent until it ends.
        with contextlib.suppress(StoreError, OSError):
            held.fail(f"{type(fault).__name__}: {fault}", None, None)
        held.give_up()
        raise
    return held


def _occupied(run: RunState, step: Step, strays: list[str]) -> AddressOccupiedError:
    place = run.store.url(step.id.address)
    return AddressOccupiedError(
        f"{step.id}: {place} has files but no record, so Marin did not make them: {', '.join(sorted(strays)[:3])}… "
        "Move them away, or use them where they are with ArtifactStep.adopt(source=...)"
    )


def _check_nesting(run: RunState, step: Step) -> None:
    parts = step.id.name.split("/")
    for cut, segment in enumerate(parts, start=1):
        outer = "/".join(parts[:cut])
        if segment.endswith("-dev") and run.store.read(record_path(outer)) is not None:
            raise NestedArtifactError(
                f"{step.id} would lie inside the artifact at {run.store.url(outer)}: rename one of them"
            )
