"""A store on a disk, shared by every process that sees it.

Hosts may share it through a file system whose ``flock`` on folders holds between hosts (Lustre with ``flock``, GPFS,
CephFS). NFS keeps such a lock within one host.

A little over 300 lines: one class, which is the whole protocol, with what its methods share.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import final

from marin.errors import NotBuiltError, OutputError, StoreBusyError, StoreError
from marin.storage import folder as folders
from marin.storage.faults import translated_faults
from marin.storage.store import BUILD_PREFIX, JOB_PREFIX, STRAY_PREFIX, Names, checked_path, is_data, is_ours

LOCK_TIMEOUT = 60.0
"""Seconds to wait for a folder's lock. It is held for one small write or a few renames, never for a whole build."""


@final
class LocalStore:
    """A ``BuildStore`` below the folder ``root``, which is made by the first write.

    ``durable``: what a method has put there survives a power cut. Without it a swap takes microseconds, not
    milliseconds; processes that are killed lose nothing either way.

    A file changes while its folder's lock is held, so ``write`` and ``compare_and_swap`` may be mixed. A method that
    raises ``StoreError`` may have done its work when only making it durable has failed: read back to know.
    """

    publishes_by_moving: bool = True

    def __init__(self, root: str | Path, *, durable: bool = True, lock_timeout: float = LOCK_TIMEOUT) -> None:
        self.root = os.path.abspath(root)
        self.durable = durable
        self._lock_timeout = lock_timeout
        self._base = self.root.rstrip("/") + "/"

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r}, durable={self.durable})"

    # Locations

    def url(self, path: str) -> str:
        return self._base + checked_path(path) if path else self.root

    def relative(self, url: str) -> str | None:
        if not url.startswith("/"):
            return None
        for location in (os.path.normpath(url), os.path.realpath(url)):
            for root in (self.root, os.path.realpath(self.root)):
                if location == root:
                    return ""
                if location.startswith(root.rstrip("/") + "/"):
                    return location.removeprefix(root).lstrip("/")
        return None

    # Files

    def read(self, path: str) -> bytes | None:
        location = self._base + checked_path(path)
        with translated_faults(location, writing=False):
            return folders.read_file(location)

    def write(self, path: str, data: bytes) -> None:
        location = self._base + checked_path(path)
        folder, _, name = location.rpartition("/")
        with translated_faults(location, writing=True):
            while True:
                with self._locked(folder, create=True) as locked:
                    if locked is not None and self._replace(locked, folder, name, data):
                        return

    def compare_and_swap(self, path: str, expected: bytes | None, new: bytes) -> bool:
        location = self._base + checked_path(path)
        folder, _, name = location.rpartition("/")
        with translated_faults(location, writing=True):
            while True:
                with self._locked(folder, create=expected is None) as locked:
                    # All through the descriptor: the folder that is locked is the one that is changed.
                    if locked is None or folders.read_file(name, folder=locked) != expected:
                        return False
                    if self._replace(locked, folder, name, new, is_new=expected is None):
                        return True

    def list(self, path: str) -> Names:
        location = self.url(path)
        with translated_faults(location, writing=False):
            try:
                with os.scandir(location) as entries:
                    return sorted(
                        f"{entry.name}/" if entry.is_dir() else entry.name
                        for entry in entries
                        if not entry.name.startswith(folders.TEMPORARY)
                        and (not entry.is_symlink() or os.path.exists(entry.path))
                    )
            except (FileNotFoundError, NotADirectoryError):
                return []

    def delete(self, path: str) -> None:
        location = self._base + checked_path(path)
        folder, _, name = location.rpartition("/")
        with translated_faults(location, writing=True):
            while os.path.lexists(location):
                if os.path.isdir(location):
                    return self._remove_folder(location, timeout=self._lock_timeout, durable=self.durable)
                # Suppressed: a folder has taken the file's place since we looked.
                with self._locked(folder, create=False) as locked, contextlib.suppress(IsADirectoryError):
                    if locked is not None:
                        folders.remove_file(name, folder=locked)
                        self._sync(locked)
            return None

    # Folders

    def make_folder(self, path: str) -> None:
        location = self._base + checked_path(path)
        with translated_faults(location, writing=True):
            while True:
                try:
                    os.mkdir(location)
                    if self.durable:
                        folders.sync_one(os.path.dirname(location))
                    return
                except FileNotFoundError:
                    # Again and again, as an empty parent may be tidied away by somebody in between.
                    folders.make_folders(os.path.dirname(location), durable=self.durable)

    def move_folder(self, source: str, target: str) -> None:
        old, new = self._base + checked_path(source), self._base + checked_path(target)
        with translated_faults(old, writing=True), self._locked(old, create=False) as locked:
            while locked is not None and os.path.lexists(old):
                with translated_faults(new, writing=True):
                    folders.make_folders(os.path.dirname(new), durable=self.durable)
                    if os.path.lexists(new):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
                    with contextlib.suppress(FileNotFoundError):  # as in make_folder
                        os.rename(old, new)
                        break
            else:
                raise NotBuiltError(f"{old} is not there: it was removed or moved by somebody else; look and try again")
            if self.durable:
                folders.sync_one(os.path.dirname(new))
                folders.sync_one(os.path.dirname(old))

    def sync(self, path: str) -> None:
        location = self.url(path)
        if self.durable:
            with translated_faults(location, writing=True):
                folders.sync_tree(location)

    # Publishing

    def publish(self, record_path: str, expected: bytes, new: bytes, build_folder: str) -> bool:
        record, build = self._base + checked_path(record_path), self._base + checked_path(build_folder)
        folder, _, name = record.rpartition("/")
        with translated_faults(record, writing=True), self._locked(folder, create=False) as locked:
            if locked is None or folders.read_file(name, folder=locked) != expected:
                return False
            entries = sorted(os.listdir(build))
            _refuse_reserved(entries, name, build)
            present = folders.remove_unfinished_files(folder, locked)
            if strays := [entry for entry in present if entry in entries or is_data(entry)]:
                self._set_aside(folder, strays)
            try:
                self._move(entries, build, folder)
                self._sync(locked)
                folders.replace_file(locked, name, new, durable=self.durable)
            except BaseException:
                # Only the last fsync can fail with the record written: then the data stays where the record says.
                if folders.read_file(name, folder=locked) == expected:
                    self._move([entry for entry in entries if os.path.lexists(f"{folder}/{entry}")], folder, build)
                else:
                    self._remove_emptied(build)
                    self._remove_attempts(folder, present, build)
                raise
            # Still locked: whoever takes this build back puts its data where it was.
            self._remove_emptied(build)
        self._remove_attempts(folder, present, build)
        return True

    def unpublish(self, record_path: str, expected: bytes | None, new: bytes, into: str) -> bool:
        record, target = self._base + checked_path(record_path), self._base + checked_path(into)
        folder, _, name = record.rpartition("/")
        with translated_faults(record, writing=True), self._locked(folder, create=expected is None) as locked:
            if locked is None or folders.read_file(name, folder=locked) != expected:
                return False
            strays = [entry for entry in folders.remove_unfinished_files(folder, locked) if is_data(entry)]
            clashing = [entry for entry in strays if os.path.lexists(f"{target}/{entry}")]
            self._set_aside(folder, clashing)
            moving = sorted(set(strays).difference(clashing))
            if moving:
                folders.make_folders(target, durable=self.durable)
                self._move(moving, folder, target)
                self._sync(locked)
            folders.replace_file(locked, name, new, durable=self.durable)
            return True

    # Reading while others remove

    @contextlib.contextmanager
    def hold(self, path: str) -> Generator[None]:
        location = self._base + checked_path(path)
        with translated_faults(location, writing=False):
            locked = folders.lock_folder(location, exclusive=False, timeout=self._lock_timeout)
        if locked is None:
            raise NotBuiltError(f"{location} is not there any more: somebody has removed or replaced it; run again")
        try:
            yield
        finally:
            folders.unlock_folder(locked)

    def remove_unheld(self, path: str) -> bool:
        location = self._base + checked_path(path)
        with translated_faults(location, writing=True):
            try:
                self._remove_folder(location, timeout=0, durable=self.durable)
            except StoreBusyError:
                return False
        return True

    # What the methods above share

    def _locked(self, folder: str, *, create: bool) -> _Locked:
        """The descriptor of the locked folder. None: it is not there, and was not to be made."""
        return _Locked(folder, self._lock_timeout, durable=self.durable, create=create)

    def _replace(self, locked: int, folder: str, name: str, data: bytes, *, is_new: bool = False) -> bool:
        """Puts ``data`` at ``name`` in the locked folder. False: it was removed with a folder above it."""
        try:
            folders.replace_file(locked, name, data, durable=self.durable, is_new=is_new)
        except FileNotFoundError:
            if folders.lies_at(locked, folder):
                raise
            return False
        return True

    def _remove_folder(self, location: str, *, timeout: float, durable: bool) -> None:
        parent = os.path.dirname(location)
        try:
            locked = folders.lock_folder(location, exclusive=True, timeout=timeout)
        except PermissionError:  # steps may leave folders that are closed even to their owner
            os.chmod(location, stat.S_IRWXU)
            locked = folders.lock_folder(location, exclusive=True, timeout=timeout)
        if locked is None:
            return
        # Out of reach first: nobody ever sees a folder that is half there, also if we are killed while removing it.
        doomed = f"{parent}/{folders.temporary_name()}"
        try:
            os.rename(location, doomed)
            if durable:
                folders.sync_one(parent)
        except FileNotFoundError:
            # A folder above it was removed, and with it all that we came for.
            return
        finally:
            folders.unlock_folder(locked)
        folders.remove_tree(doomed)
        folders.remove_unfinished_removals(parent)

    def _remove_attempts(self, folder: str, present: Iterable[str], build: str) -> None:
        """Removes what other attempts have left at an address whose data is published: none of it counts any more."""
        for name in present:
            if name.startswith((BUILD_PREFIX, JOB_PREFIX)) and (left := f"{folder}/{name}") != build:
                self._try_to_remove(left)

    def _remove_emptied(self, build: str) -> None:
        try:
            os.rmdir(build)
        except OSError:  # a writer that the step has left behind may have come late
            self._try_to_remove(build)

    def _try_to_remove(self, folder: str) -> None:
        # Held, or not ours to remove: it is in nobody's way. Nor is one that a crash of the machine brings back.
        with contextlib.suppress(StoreError, OSError):
            self._remove_folder(folder, timeout=0, durable=False)

    def _set_aside(self, folder: str, entries: Iterable[str]) -> None:
        """Moves entries of ``folder`` where they are in nobody's way and can be found."""
        if entries := sorted(entries):
            stamp = time.strftime("%Y%m%d-%H%M%S")
            aside = f"{folder}/{STRAY_PREFIX}{stamp}-{os.urandom(4).hex()}"
            folders.make_folders(aside, durable=self.durable)
            self._move(entries, folder, aside)

    def _move(self, entries: Iterable[str], source: str, target: str) -> None:
        for entry in entries:
            folders.move(f"{source}/{entry}", f"{target}/{entry}")
        if self.durable:
            folders.sync_one(target)

    def _sync(self, locked: int) -> None:
        if self.durable:
            folders.sync_descriptor(locked)


@final
class _Locked:
    """A folder that is locked while inside. Not a generator: it is entered several times for each artifact."""

    __slots__ = ("_create", "_durable", "_folder", "_locked", "_timeout")

    def __init__(self, folder: str, timeout: float, *, durable: bool, create: bool) -> None:
        self._folder = folder
        self._timeout = timeout
        self._durable = durable
        self._create = create
        self._locked: int | None = None

    def __enter__(self) -> int | None:
        if self._create:  # before a look, as mostly it is not there; a store that can't be written may have it
            with contextlib.suppress(OSError):
                folders.make_folders(self._folder, durable=self._durable)
        while True:
            self._locked = folders.lock_folder(self._folder, exclusive=True, timeout=self._timeout)
            if self._locked is not None or not self._create:
                return self._locked
            folders.make_folders(self._folder, durable=self._durable)

    def __exit__(self, *_: object) -> None:
        if self._locked is not None:
            folders.unlock_folder(self._locked)


def _refuse_reserved(entries: Iterable[str], record: str, build: str) -> None:
    for entry in entries:
        if entry == record or is_ours(entry):
            raise OutputError(
                f"{build}/{entry}: this name belongs to Marin itself, the step must not write it at the top of its "
                "output folder: let it use another name, or a folder below"
            )
