"""Files and folders of a disk: locked, replaced as a whole, made durable, removed. Raises plain ``OSError``.

A lock is a ``flock`` on the folder's own descriptor, so that there is no lock file to go stale or to be deleted. The
kernel drops it with its process. Each caller opens a descriptor of its own, which makes it hold between threads too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import stat
import time

from marin.errors import StoreBusyError

TEMPORARY = ".marin-tmp-"
"""Starts the name of an unfinished file, and of a folder on its way out. Never listed."""

_READ_BYTES = 1 << 16
"""More than a record has, and not so much that making room for it takes time."""

_MAKE_ATTEMPTS = 100
"""How often a folder may vanish under the hands of who makes one in it."""

_FIRST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.02
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY


_OURS = os.urandom(8).hex()
_COUNT = itertools.count()


def temporary_name() -> str:
    """A name that no other process on any host makes."""
    return f"{TEMPORARY}{_OURS}-{os.getpid()}-{next(_COUNT)}"  # the number: a forked child has the same count


def lock_folder(path: str, *, exclusive: bool, timeout: float) -> int | None:
    """A descriptor of the folder at ``path``, locked: end with ``unlock_folder``. None: no folder is there.

    Raises ``StoreBusyError`` when others keep the lock for longer than ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            folder = os.open(path, _FOLDER_FLAGS)
        except FileNotFoundError:
            return None
        try:
            _acquire(folder, path, exclusive=exclusive, deadline=deadline, timeout=timeout)
            # While we waited the folder may have been removed or moved, and another one made at its path.
            if lies_at(folder, path):
                return folder
        except BaseException:
            os.close(folder)
            raise
        unlock_folder(folder)


def unlock_folder(folder: int) -> None:
    """Ends a lock."""
    try:
        # Closing is not enough: a child that another thread forks at this moment shares the lock with us.
        fcntl.flock(folder, fcntl.LOCK_UN)
    finally:
        os.close(folder)


def _acquire(folder: int, path: str, *, exclusive: bool, deadline: float, timeout: float) -> None:
    operation = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
    pause = _FIRST_PAUSE
    while True:
        try:
            return fcntl.flock(folder, operation)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise StoreBusyError(
                    f"{path}: another process has kept this folder locked for more than {timeout:g} s. "
                    f"`fuser {path}` shows which one: wait for it, or end it if it is stuck; then try again"
                ) from None
        # Jitter, so that waiters that were turned away together don't come back together. The random module would
        # cost more to import than all the rest of this one.
        time.sleep(pause * (0.5 + os.urandom(1)[0] / 512))
        pause = min(2 * pause, _LONGEST_PAUSE)


def lies_at(folder: int, path: str) -> bool:
    """Whether the open ``folder`` is what lies at ``path`` now."""
    ours = os.fstat(folder)
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return ours.st_ino == there.st_ino and ours.st_dev == there.st_dev


def make_folders(path: str, *, durable: bool, attempts: int = _MAKE_ATTEMPTS) -> None:
    """Makes the folder and those above it where they are missing. Raises ``FileExistsError`` if a file is there."""
    try:
        os.mkdir(path)
    except FileNotFoundError:
        if attempts == 0:
            raise  # no folder can be made here, such as below /proc
        make_folders(os.path.dirname(path), durable=durable, attempts=attempts)
        # From the start, as somebody may remove the empty parent in between: again and again only by ill will.
        make_folders(path, durable=durable, attempts=attempts - 1)
    except FileExistsError:
        # A link to nothing is in the way too. What is gone by now is not: who comes to use it will see.
        if os.path.islink(path) if (mode := _mode(path)) is None else not stat.S_ISDIR(mode):
            raise
    else:
        # A parent that is gone already has taken the new folder along: who comes to use it will see.
        with contextlib.suppress(FileNotFoundError):
            if durable:
                sync_one(os.path.dirname(path))


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def read_file(path: str, *, folder: int | None = None) -> bytes | None:
    """The bytes of the file at ``path`` (below the descriptor ``folder``). None: absent, or a link to nothing."""
    try:
        file = os.open(path, os.O_RDONLY, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise
    try:
        parts: list[bytes] = []
        while part := os.read(file, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def replace_file(folder: int, name: str, data: bytes, *, durable: bool, is_new: bool = False) -> None:
    """Puts ``data`` at ``name`` in the open ``folder``, whole: at every moment the name has its old or its new bytes.

    ``is_new``: nothing lies at ``name``, as far as the caller knows.

    Where it raises, nothing has changed, unless it is the last step (the folder's fsync) that failed.
    """
    scratch = temporary_name()
    # 0o666 and no mkstemp: the umask decides who may read it, and a setgid folder gives it its group.
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    try:
        try:
            if not durable and not is_new:
                _allocate(file, len(data))
            written = os.write(file, data)
            while written < len(data):
                written += os.write(file, data[written:])
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.rename(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        remove_file(scratch, folder=folder)
        raise
    if durable:
        sync_descriptor(folder)


def _allocate(file: int, size: int) -> None:
    """Give an empty file its blocks. ext4 starts a transfer for each file without them that replaces another."""
    # Whatever is wrong with the disk is told by the writing.
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fallocate(file, 0, size)


def remove_file(path: str, *, folder: int | None = None) -> None:
    """Removes a file. Absent is fine."""
    try:
        os.unlink(path, dir_fd=folder)
    except FileNotFoundError:
        return


def move(source: str, target: str) -> None:
    """Renames a file or a folder, also out of, or itself, a folder of ours that its maker has made read-only."""
    try:
        os.rename(source, target)
    except PermissionError:
        parent, mode = os.path.dirname(source), stat.S_IMODE(os.lstat(source).st_mode)
        is_folder = stat.S_ISDIR(os.lstat(source).st_mode)
        os.chmod(parent, stat.S_IMODE(os.stat(parent).st_mode) | stat.S_IRWXU)
        if is_folder:  # to move a folder is to change the way up that is written in it
            os.chmod(source, mode | stat.S_IWUSR)
        os.rename(source, target)
        if is_folder:
            os.chmod(target, mode)


def remove_unfinished_files(path: str, locked: int) -> list[str]:
    """Removes files that killed writers left in the folder which the caller has locked, so that no writer is in it.

    Returns the names of all else that is in the folder.
    """
    left: list[str] = []
    for name in os.listdir(path):
        if name.startswith(TEMPORARY) and stat.S_ISREG(os.lstat(name, dir_fd=locked).st_mode):
            remove_file(name, folder=locked)
        else:
            left.append(name)
    return left


def remove_tree(path: str) -> None:
    """Removes a folder that nobody can reach by its old name any more. Others may be removing it as well."""
    if os.path.islink(path):
        return remove_file(path)
    # Faults are ignored at first: another remover is one file ahead, or a writer that had the folder open adds one.
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        if os.path.lexists(path):
            _allow_removal(path)
            shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            shutil.rmtree(path)
    return None


def remove_unfinished_removals(parent: str) -> None:
    """Removes the folders below ``parent`` whose removal was cut short, as well as it goes."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(parent):
            if name.startswith(TEMPORARY) and os.path.isdir(f"{parent}/{name}"):
                with contextlib.suppress(OSError):
                    remove_tree(f"{parent}/{name}")


def _allow_removal(path: str) -> None:
    """Steps may leave folders that are read-only even for their owner."""
    os.chmod(path, stat.S_IRWXU)
    for folder, names, _files in os.walk(path):
        for name in names:
            if not os.path.islink(f"{folder}/{name}"):
                os.chmod(f"{folder}/{name}", stat.S_IRWXU)


def sync_one(path: str) -> None:
    """Makes a file, or the entries of a folder, survive a power cut."""
    opened = os.open(path, os.O_RDONLY)
    try:
        sync_descriptor(opened)
    finally:
        os.close(opened)


def sync_descriptor(opened: int) -> None:
    """As ``sync_one``, for what is open. File systems that can't do that for folders order them by themselves."""
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_tree(path: str) -> None:
    """Makes the folder at ``path`` and all below it durable: files first, then the folders that name them."""
    for folder, _names, files in os.walk(path, topdown=False, onerror=_raise):
        for name in files:
            file = f"{folder}/{name}"
            # A link is an entry of its folder. Opening a pipe would wait for its other end.
            if stat.S_ISREG(os.lstat(file).st_mode):
                sync_one(file)
        sync_one(folder)
    sync_one(os.path.dirname(path))


def _raise(error: OSError) -> None:
    raise error
