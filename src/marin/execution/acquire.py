"""Getting the lease of an artifact: taking it, waiting for whoever has it, taking it over from the dead."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
from dataclasses import dataclass

import msgspec

from marin.errors import AddressOccupiedError, CorruptRecordError, NestedArtifactError, StepError, StoreError
from marin.execution.graph import Step
from marin.execution.held_record import WORKING_UNDER_VARIABLE, HeldRecord, is_around_us, is_given_up, stopped
from marin.execution.observe import check_data
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
from marin.execution.remote_function import RemoteFunction
from marin.execution.run_state import RunState, Stopped
from marin.executors.leftovers import end_processes
from marin.storage.owner import SilenceWatch, describe, is_dead_here, this_process
from marin.storage.store import BUILD_PREFIX, JOB_PREFIX, STRAY_PREFIX, is_data

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
        prepare_folder(run, step, held, before, record.build if record is not None else None)
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


def prepare_folder(run: RunState, step: Step, held: HeldRecord, before: Attempt | None, kept: Build | None) -> None:
    """Make the folder of the attempt: empty, or with the work that a resumable step left behind."""
    address = step.id.address
    folder = build_folder(address, held.attempt.build_id)
    old = build_folder(address, before.build_id) if before is not None else None
    is_gone = before is None or before.error is not None or _is_gone(run, step, before)
    # A mutable version never goes on from what another run left; a retry of this run may.
    may_resume = not step.id.is_mutable or (before is not None and before.lease.nonce == held.attempt.lease.nonce)
    if old is not None and is_resumable(step) and may_resume and os.path.isdir(run.store.url(old)):
        if before is not None and before.fingerprint_digest == held.attempt.fingerprint_digest:
            # A builder that is only silent may wake up and write on: then it must not be into our folder.
            if is_gone:
                run.store.move_folder(old, folder)
            if is_gone or _copied(run, old, folder):
                run.reporter.noted(step.id, f"goes on from what the attempt of {before.started} left")
            else:
                run.reporter.noted(step.id, "starts anew: what an earlier attempt left is still being changed")
        else:
            run.reporter.noted(step.id, "starts anew: what an earlier attempt left was made by another recipe")
    if before is None or not os.path.isdir(run.store.url(folder)):
        run.store.make_folder(folder)
    if before is not None or kept is not None:
        remove_old_builds(run, address, keep={os.path.basename(folder), kept.data if kept else ""})


def _is_gone(run: RunState, step: Step, before: Attempt) -> bool:
    """Whether nothing of a killed attempt can write any more. Processes that it has left behind are ended."""
    if not is_dead_here(before.lease.owner):
        return False
    if not isinstance(step.run, RemoteFunction):
        return True
    count, none_left = end_processes(WORKING_UNDER_VARIABLE, before.lease.nonce)
    if count:
        run.reporter.noted(step.id, f"ended {count} processes that its killed builder has left behind")
    return none_left


def _copied(run: RunState, old: str, folder: str) -> bool:
    """Copy what a silent builder left. False: it changed meanwhile, so that a part of it is missing."""
    try:
        shutil.copytree(run.store.url(old), run.store.url(folder), symlinks=True)
    except (FileNotFoundError, shutil.Error):
        run.store.delete(folder)
        return False
    return True


def remove_old_builds(run: RunState, address: str, keep: set[str]) -> None:
    """Remove the folders that no record names, unless somebody still reads them."""
    for name in run.store.list(address):
        bare = name.rstrip("/")
        if bare.startswith((BUILD_PREFIX, JOB_PREFIX)) and bare not in keep:
            # What can't be removed is in nobody's way.
            with contextlib.suppress(StoreError, OSError):
                run.store.remove_unheld(f"{address}/{bare}")


def is_resumable(step: Step) -> bool:
    """Whether the step can go on from what an earlier attempt of the same recipe left."""
    return isinstance(step.run, RemoteFunction) and step.run.resumable
