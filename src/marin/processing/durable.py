"""Files that are either whole or absent, also after a crash."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator
from typing import TypeVar

import msgspec

from marin.storage.faults import translated_faults

T = TypeVar("T")


@contextlib.contextmanager
def whole_file(path: str) -> Generator[str, None, None]:
    """Gives a scratch path beside ``path``; what is written there appears as ``path`` once it is on the disk.

    If the body raises, the scratch file is removed and ``path`` is left as it was. Its permissions are what the umask
    says, also where a library that writes it would keep it to the user.
    """
    scratch = f"{path}.tmp"
    try:
        with open(scratch, "wb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        yield scratch
        os.chmod(scratch, mode)
        commit_file(scratch, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        raise


def commit_file(scratch: str, path: str) -> None:
    """Make the finished file ``scratch`` durable, then rename it to ``path``, in the same folder.

    Also for a folder whose files are durable already; ``path`` must then be absent.
    """
    sync(scratch)
    os.replace(scratch, path)
    sync(os.path.dirname(path) or ".")


def write_whole(path: str, data: bytes) -> None:
    """Write ``data`` to ``path``, whole or not at all."""
    with translated_faults(path, writing=True), whole_file(path) as scratch, open(scratch, "wb") as file:
        file.write(data)


def read_remembered(path: str, kind: type[T]) -> T | None:
    """What an earlier attempt left at ``path``; ``None`` if it left nothing, or nothing that can be read."""
    try:
        with open(path, "rb") as stream:
            return msgspec.json.decode(stream.read(), type=kind)
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def sync(path: str) -> None:
    """Make the file, or the entries of the folder, at ``path`` survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
