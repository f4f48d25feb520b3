"""What the operating system says, in our words. The one place where an ``OSError`` of a store is translated."""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import final

from marin.errors import AddressOccupiedError, StorageFullError, StoreError, StoreReadOnlyError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
_OCCUPIED = {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP}


@final
class translated_faults:  # reads as the statement that it is
    """Raises an ``OSError`` of the block as the ``StoreError`` that says what to do about ``location``."""

    __slots__ = ("_location", "_writing")

    def __init__(self, location: str, *, writing: bool) -> None:
        self._location = location
        self._writing = writing

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(fault, OSError):
            raise store_fault(fault, self._location, writing=self._writing) from fault


def store_fault(error: OSError, location: str, *, writing: bool) -> StoreError:
    """The error that tells a user what ``error`` means for the file or folder at ``location``."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _FULL:
        return StorageFullError(
            f"{location}: no room to write ({reason}): free space or raise the quota there, "
            "or choose another store with --prefix"
        )
    if error.errno in _FORBIDDEN and writing:
        return StoreReadOnlyError(
            f"{location} can't be written ({reason}): get write permission there, or choose another "
            "store with --prefix. What is built there can still be read"
        )
    if error.errno in _FORBIDDEN:
        return StoreError(f"{location} can't be read ({reason}): ask its owner for permission to read it")
    if error.errno in _OCCUPIED:
        return AddressOccupiedError(_obstacle(location))
    if error.errno == errno.EXDEV:
        return StoreError(f"{location}: a part of it lies on another file system: keep the whole store on one")
    action = "write" if writing else "read"
    return StoreError(
        f"{location}: the operating system refused to {action} it ({reason}): check the disk or the mount"
    )


def _obstacle(location: str) -> str:
    """Says what lies at ``location``, or at the nearest folder above it that exists, and how to get past it."""
    place = location
    while True:
        try:
            mode = os.lstat(place).st_mode
            break
        except OSError:
            parent = os.path.dirname(place)
            if parent == place:
                return f"{location}: something is in the way: look at it, then move it away"
            place = parent
    if stat.S_ISLNK(mode) and not os.path.exists(place):
        return f"{place} is a link to something that is not there: bring its target back (a mount?), or remove the link"
    if stat.S_ISDIR(mode) or os.path.isdir(place):
        return f"{place} is a folder that is in the way: move it away, or choose another name or --prefix"
    return f"{place} is a file where a folder should be: move it away, or choose another name or --prefix"
