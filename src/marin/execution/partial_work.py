"""What an attempt left that was not finished, and the attempt that goes on from it. Nothing of it is lost on the way.

From the moment that a record names a new attempt, it also names the one whose work that is to take over: whoever is
killed, interrupted or short of disk before the work has changed hands leaves a record that still leads to it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time

import msgspec

from marin.errors import StepError, StoreError
from marin.execution.graph import Step
from marin.execution.held_record import WORKING_UNDER_VARIABLE, HeldRecord
from marin.execution.record import Attempt, build_folder
from marin.execution.remote_function import RemoteFunction
from marin.execution.run_state import RunState
from marin.executors.leftovers import end_processes
from marin.storage.owner import describe, is_dead_here
from marin.storage.store import BUILD_PREFIX, JOB_PREFIX

_COPYING = ".copying"
_COPY_TRIES, _COPY_PAUSE_SECONDS = 3, 0.5


def leftover(run: RunState, step: Step, before: Attempt) -> Attempt | None:
    """The attempt whose work a new one of ``step`` may go on from.

    That is ``before``; or, if it never came to have a folder, the one whose work it was to take over.
    """
    if not _is_resumable(step):
        return None
    for left in (before, before.takes_over):
        if left is not None and os.path.isdir(run.store.url(build_folder(step.id.address, left.build_id))):
            return msgspec.structs.replace(
                left, inputs=(), log=None, frame=None, earlier=(), stop=None, takes_over=None
            )
    return None


def prepare_folder(run: RunState, step: Step, held: HeldRecord, *, is_first: bool) -> None:
    """Make the folder of the attempt: empty, or with the work that it takes over. Then remove what no record names.

    ``is_first``: nothing was ever attempted here. Raises ``StepError`` where another builder still changes that work
    and the step may not begin anew without it.
    """
    address = step.id.address
    folder = build_folder(address, held.attempt.build_id)
    left = held.attempt.takes_over
    if left is None or not _taken_over(run, step, held, left):
        run.store.make_folder(folder)
    if not is_first or held.kept is not None:
        keep = {os.path.basename(folder), held.kept.data if held.kept is not None else ""}
        _remove_old_builds(run, address, keep)


def _taken_over(run: RunState, step: Step, held: HeldRecord, left: Attempt) -> bool:
    """Whether the attempt was given what ``left`` has left behind."""
    assert isinstance(step.run, RemoteFunction)
    # A mutable version never goes on from what another run left; a retry of this run may.
    if step.id.is_mutable and left.lease.nonce != held.attempt.lease.nonce:
        return False
    judges = step.run.resumable == "any_recipe"
    is_same = left.fingerprint_digest == held.attempt.fingerprint_digest
    if not is_same and not judges:
        run.reporter.noted(step.id, "starts anew: what an earlier attempt left was made by another recipe")
        return False
    old, folder = (build_folder(step.id.address, each.build_id) for each in (left, held.attempt))
    # A builder that is only silent may wake up and write on: then it must not be into our folder.
    if left.error is not None or _is_gone(run, step, left):
        run.store.move_folder(old, folder)
    elif not _copied(run, held, old, folder):
        still = "what an earlier attempt left is still being changed"
        if judges:
            raise StepError(
                f"{step.id}: {still} by {describe(left.lease.owner)}: end that process and run again; nothing is lost"
            )
        run.reporter.noted(step.id, f"starts anew: {still}")
        return False
    of_another = "" if is_same else ", made by another recipe, if that fits"
    run.reporter.noted(step.id, f"goes on from what the attempt of {left.started} left{of_another}")
    return True


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


def _copied(run: RunState, held: HeldRecord, old: str, folder: str) -> bool:
    """Copy what a silent builder left, as a whole or not at all. False: it changes, so that a part would be missing.

    No retry of this run comes here: what it leaves is over, and ``held`` would be kept twice.

    Raises ``StoreError`` if the copy can't be written.
    """
    partial = folder + _COPYING
    source, target = run.store.url(old), run.store.url(partial)
    for _ in range(_COPY_TRIES):
        try:
            with run.keeper.keep(held):  # it may be large
                shutil.copytree(source, target, symlinks=True)
            run.store.sync(partial)
            run.store.move_folder(partial, folder)
        except (FileNotFoundError, shutil.Error) as fault:
            run.store.delete(partial)
            _raise_unless_gone(fault, source)
            time.sleep(_COPY_PAUSE_SECONDS)
        else:
            return True
    return False


def _raise_unless_gone(fault: OSError, source: str) -> None:
    """Raise ``StoreError`` unless ``fault``, of a copying, comes from files that were removed meanwhile."""
    if not isinstance(fault, shutil.Error):
        return
    for path, _, why in fault.args[0]:
        if os.path.lexists(path):
            raise StoreError(f"{source}, left by an earlier attempt, can't be copied: {why}") from fault


def _remove_old_builds(run: RunState, address: str, keep: set[str]) -> None:
    """Remove the folders that no record names, unless somebody still reads them."""
    for name in run.store.list(address):
        bare = name.rstrip("/")
        if bare.startswith((BUILD_PREFIX, JOB_PREFIX)) and bare not in keep:
            # What can't be removed is in nobody's way.
            with contextlib.suppress(StoreError, OSError):
                run.store.remove_unheld(f"{address}/{bare}")


def _is_resumable(step: Step) -> bool:
    return isinstance(step.run, RemoteFunction) and bool(step.run.resumable)
