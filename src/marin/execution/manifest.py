"""What a build consists of: its files with sizes and digests, and their sum.

The record has the sum and, of a build of a few files, the list as well; that of a larger one lies beside its data.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from marin.errors import OutputError
from marin.storage.faults import translated_faults

MANIFEST_FILE = ".manifest.json"
"""Lies in the folder that it lists, and does not list itself."""

MAX_LISTED = 8
"""Of how many files the record has the list, which spares a file for each of the many artifacts that are small."""

_READ_BYTES = 1 << 18
_CLOCK_NS = 50_000_000
"""So much the times of files may be behind the clock: they are taken from one that ticks more slowly."""


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of a build. ``path`` is relative, with ``/``; ``sha256`` is in hex."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ManifestSummary:
    """How much data, and one digest over names and contents. ``listed``: all files, if they are few."""

    files: int
    bytes: int
    digest: str
    listed: tuple[FileEntry, ...] | None = None


def write_manifest(folder: str, *, refuse: Callable[[str], bool] = lambda name: False) -> ManifestSummary:
    """Read all files below ``folder``, list them there if they are many, and return the sum. Errors: ``list_files``.

    Raises ``StoreError``, such as ``StorageFullError``, if the list can't be written.
    """
    return _written(folder, list_files(folder, refuse=refuse))


def renewed_manifest(
    folder: str, before: ManifestSummary, listed_at: int, *, refuse: Callable[[str], bool] = lambda name: False
) -> ManifestSummary:
    """``before``, made at ``listed_at`` nanoseconds, with what has been written since. Raises as ``write_manifest``.

    For when all who could write have ended: a file may be written to until then, such as by an ``atexit`` function.
    """
    place = f"{folder}/{MANIFEST_FILE}"
    if before.listed is not None:
        known = list(before.listed)
    else:
        import json  # noqa: PLC0415  # most builds are small, and wait for it in vain

        with translated_faults(place, writing=False), open(place, "rb") as file:
            known = [FileEntry(**entry) for entry in json.load(file)]
    by_path = {entry.path: entry for entry in known}
    digests: dict[tuple[int, int], str] = {}

    def taken(path: str, full: str) -> FileEntry:
        entry, status = by_path.get(path), os.stat(full)
        if entry is not None and entry.bytes == status.st_size and status.st_mtime_ns < listed_at - _CLOCK_NS:
            return entry
        return _entry(path, full, digests)

    found = _listed(folder, refuse, taken)
    if found == known:
        return before
    if before.listed is None and len(found) <= MAX_LISTED:
        os.unlink(place)  # they have become so few that the record has them
    return _written(folder, found)


def _written(folder: str, entries: list[FileEntry]) -> ManifestSummary:
    place = f"{folder}/{MANIFEST_FILE}"
    if len(entries) <= MAX_LISTED:
        return summarize(entries, listed=True)
    import json  # noqa: PLC0415  # as above

    with translated_faults(place, writing=True), open(place, "wb") as file:
        lines = [{"path": entry.path, "bytes": entry.bytes, "sha256": entry.sha256} for entry in entries]
        file.write(json.dumps(lines, ensure_ascii=False, separators=(",", ":")).encode())
    return summarize(entries)


def first_missing(folder: str, manifest: ManifestSummary | None) -> str | None:
    """The first path below ``folder`` that should be there and is not. Reads no file, and no folder."""
    listed = manifest.listed if manifest is not None else None
    if not listed:
        path = MANIFEST_FILE if listed is None else ""
        return path if _is_missing(f"{folder}/{path}") else None
    for entry in listed:
        if _is_missing(f"{folder}/{entry.path}"):
            return entry.path
    return None


def _is_missing(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, UnicodeError):
        return False  # who may not look, or can't say its name, does not know
    return False


def list_files(folder: str, *, refuse: Callable[[str], bool] = lambda name: False) -> list[FileEntry]:
    """Every file below ``folder``, in the order of the UTF-8 bytes of its path, with size and digest.

    The manifest itself is left out. ``refuse``: whether a name directly in ``folder`` is one that must not be there.

    Raises ``OutputError`` for such a name, and for what can't be moved or read again elsewhere: links that dangle, are
    absolute or lead outside, sockets and pipes, names that are not UTF-8, folders nested too deeply.
    """
    digests: dict[tuple[int, int], str] = {}
    return _listed(folder, refuse, lambda path, full: _entry(path, full, digests))


def _listed(folder: str, refuse: Callable[[str], bool], taken: Callable[[str, str], FileEntry]) -> list[FileEntry]:
    try:
        found = [taken(path, full) for path, full in _walk(folder, "", (folder,), refuse)]
    except RecursionError as fault:
        raise OutputError("the step nested its output folders too deeply: make them flatter") from fault
    return sorted(found, key=_by_bytes) if len(found) > 1 else found


def summarize(entries: Sequence[FileEntry], *, listed: bool = False) -> ManifestSummary:
    """The sum of ``entries``. The digest is over their paths, sizes and digests, each with its length."""
    total = hashlib.sha256()
    for entry in sorted(entries, key=_by_bytes):
        path = entry.path.encode()
        total.update(struct.pack(">Q", len(path)) + path + struct.pack(">Q", entry.bytes) + bytes.fromhex(entry.sha256))
    return ManifestSummary(
        files=len(entries),
        bytes=sum(entry.bytes for entry in entries),
        digest=total.hexdigest(),
        listed=tuple(entries) if listed else None,
    )


def _by_bytes(entry: FileEntry) -> bytes:
    return entry.path.encode()


def _entry(path: str, full: str, digests: dict[tuple[int, int], str]) -> FileEntry:
    """``digests``: of the files that were read before; one that is reached by two paths is read once."""
    # Not by open(): most steps write a few small files, and what it asks of the system costs more than the reading.
    file = os.open(full, os.O_RDONLY)
    try:
        status = os.fstat(file)
        inode = (status.st_dev, status.st_ino)
        digest = digests.get(inode)
        if digest is None:
            digest = digests[inode] = _sha256(file, status.st_size)
    finally:
        os.close(file)
    return FileEntry(path=path, bytes=status.st_size, sha256=digest)


def _sha256(file: int, size: int) -> str:
    first = os.read(file, min(size + 1, _READ_BYTES))
    total = hashlib.sha256(first)
    if len(first) != size:  # it is longer than one reading, or grows
        while part := os.read(file, _READ_BYTES):
            total.update(part)
    return total.hexdigest()


def _walk(root: str, inside: str, above: tuple[str, ...], refuse: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Every file below ``root/inside``: its relative and its full path. ``above``: the folders on the way."""
    with os.scandir(above[-1]) as entries:
        for entry in entries:
            path = f"{inside}/{entry.name}" if inside else entry.name
            if not inside and refuse(entry.name):
                raise OutputError(
                    f"the step wrote {entry.name!r}, a name that is kept for Marin: write it under another name"
                )
            if path == MANIFEST_FILE:
                continue
            _check_text(path)
            if is_link := entry.is_symlink():
                _check_link(os.path.realpath(root), path, entry.path)
            if entry.is_file():
                yield path, entry.path
            elif entry.is_dir():
                if is_link and any(os.path.samefile(folder, entry.path) for folder in above):
                    raise OutputError(f"{path!r} is a link to a folder that contains it: link to something else")
                yield from _walk(root, path, (*above, entry.path), refuse)
            else:
                raise OutputError(
                    f"{path!r} is neither a file nor a folder, and can't be kept: remove it before returning"
                )


def _check_text(path: str) -> None:
    if path.isascii():
        return
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OutputError(f"the file name {os.fsencode(path)!r} is not UTF-8: write it under another name") from None


def _check_link(root: str, path: str, full: str) -> None:
    target = os.readlink(full)
    if os.path.isabs(target):
        # The build folder is renamed when it is published.
        raise OutputError(
            f"{path!r} links to {target!r}, which holds only on this machine: copy it, or link relatively"
        )
    way = os.path.normpath(os.path.join(os.path.dirname(path), target))
    real = os.path.realpath(full)
    if way.split(os.sep)[0] == os.pardir or not (real == root or real.startswith(root + os.sep)):
        raise OutputError(f"{path!r} links to {target!r}, outside of the output folder: copy it, or link inside")
    if not os.path.exists(full):
        raise OutputError(f"{path!r} links to {target!r}, which is not there: write it, or remove the link")
