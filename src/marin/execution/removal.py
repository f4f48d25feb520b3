"""Taking an artifact out of a store: into its trash, from where a person can bring it back."""

from __future__ import annotations

import contextlib
import datetime

from marin.errors import DependentsError, NotBuiltError, StoreBusyError, StoreError
from marin.execution.catalog import Condition, dependents, not_there, read_entry
from marin.execution.identity import ArtifactId
from marin.execution.record import Attempt, Lease, Record, State, encode_record, new_build_id, record_path, timestamp
from marin.storage.owner import describe, this_process
from marin.storage.store import BuildStore

TRASH = ".marin/trash"
"""Where removed artifacts go, below the prefix."""

_REMOVAL_SECONDS = 60.0


def remove(store: BuildStore, id_: ArtifactId, *, force: bool = False) -> str:
    """Move the artifact to the store's trash, and say where it lies now. Adopted data itself stays where it is.

    Raises ``NotBuiltError``; ``StoreBusyError`` while somebody builds it; ``DependentsError`` if others were made
    from it, unless ``force``.
    """
    entry = read_entry(store, id_)
    if entry is None:
        raise NotBuiltError(not_there(store, id_.name, id_.version))
    if entry.condition in (Condition.BUILDING, Condition.REBUILDING) and entry.attempt is not None:
        raise StoreBusyError(
            f"{id_} is being built by {describe(entry.attempt.lease.owner)} since {entry.attempt.started}: "
            "stop that run first, or wait until it has ended. If its machine is gone, run the pipeline again, which "
            "takes the lease over, and remove it then"
        )
    if not force and (readers := dependents(store, id_)):
        raise DependentsError(
            f"{', '.join(map(str, readers))} {'was' if len(readers) == 1 else 'were'} made from {id_}: "
            "remove those first, or remove it anyway with --force"
        )
    now = datetime.datetime.now(datetime.UTC)
    target = f"{TRASH}/{id_.address}-{new_build_id(now)}"
    if entry.record is None:
        store.move_folder(id_.address, target)
        return store.url(target)
    # We take the lease before we move the folder away, so that nobody begins to build in it meanwhile.
    held = encode_record(_held_for_removal(entry.record, now))
    if not store.compare_and_swap(record_path(id_.address), entry.raw, held):
        raise StoreBusyError(
            f"{id_} has just been changed by somebody else: look at it with 'marin show' and try again"
        )
    try:
        store.move_folder(id_.address, target)
    except BaseException:
        # It stays where it is, and nobody is removing it any more.
        with contextlib.suppress(StoreError):
            store.compare_and_swap(record_path(id_.address), held, entry.raw)
        raise
    store.write(record_path(target), entry.raw)
    return store.url(target)


def _held_for_removal(record: Record, now: datetime.datetime) -> Record:
    build_id = new_build_id(now)
    lease = Lease(owner=this_process(), nonce=build_id, term=1, ttl_seconds=_REMOVAL_SECONDS)
    last = record.attempt
    if record.build is not None:
        scheme, digest = record.build.fingerprint.scheme, record.build.fingerprint.digest
    else:
        assert last is not None  # decode_record: without a build there is an attempt
        scheme, digest = last.fingerprint_scheme, last.fingerprint_digest
    attempt = Attempt(
        build_id=build_id,
        fingerprint_digest=digest,
        fingerprint_scheme=scheme,
        started=timestamp(now),
        lease=lease,
        inputs=last.inputs if last is not None else (),
    )
    return Record(name=record.name, version=record.version, state=State.BUILDING, build=record.build, attempt=attempt)
