"""What happens inside a step, in whichever thread or process it runs: call, check, measure."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

import msgspec

from marin.errors import ConfigurationError, OutputError
from marin.execution.artifact import Artifact, at_path, encode_result
from marin.execution.step_function import call_fault
from marin.storage.faults import translated_faults

A = TypeVar("A", bound=Artifact)

MANIFEST_FILE = ".manifest.json"
"""Lies in the folder that it lists, and does not list itself."""

_READ_BYTES = 1 << 18

_RESERVED = (".artifact.json", ".builds", ".logs", MANIFEST_FILE)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a manifest. ``path`` is relative, with ``/``; ``sha256`` is in hex."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a build consists of, in brief: how many files, how many bytes, and one digest over names and contents."""

    files: int
    bytes: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A step that has done its work: the JSON of its artifact's fields, and what it wrote."""

    result: dict[str, Any]
    manifest: Manifest


def execute(
    function: Callable[[Any], Any], config: Any, *, artifact_type: type[Artifact], output_path: str
) -> Completed:
    """Call ``function(config)``, check what it returns and what it wrote, and write the manifest into ``output_path``.

    Raises ``OutputError`` if it returns something else than an ``artifact_type`` (``None`` will do if that has no
    fields to fill), if the artifact's own ``verify`` refuses what was written, and for files that can't be published;
    ``StoreError``, such as ``StorageFullError``, if the manifest can't be written;
    ``ConfigurationError`` for a function that does not take a config alone. What ``function`` raises passes through.
    """
    if (fault := call_fault(function)) is not None:  # of one that was given by name, seen only now
        raise ConfigurationError(f"the step function {fault}. Take the one, or use apply(name, function, ...)")
    manifest_path = os.path.join(output_path, MANIFEST_FILE)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(manifest_path)  # of an earlier attempt, which is being resumed
    artifact = _checked_artifact(_call(function, config), artifact_type)
    _check_folder(output_path)
    try:
        at_path(artifact, output_path).verify()
    except Exception as fault:
        raise OutputError(
            f"the finished build was refused: {type(artifact).__name__}.verify says {type(fault).__name__}: {fault}"
        ) from fault
    result = encode_result(artifact, artifact_type)
    try:
        entries = list_files(output_path)
    except RecursionError as fault:
        raise OutputError("the step nested its output folders too deeply: make them flatter") from fault
    with translated_faults(manifest_path, writing=True), open(manifest_path, "wb") as file:
        file.write(msgspec.json.encode(entries))
    return Completed(result=result, manifest=summarize(entries))


def list_files(folder: str) -> list[Entry]:
    """Every file below ``folder``, in the order of the UTF-8 bytes of its path, with size and digest.

    The manifest itself is left out. Raises ``OutputError`` for what can't be moved or read again elsewhere: links that
    dangle, are absolute or lead outside, sockets and pipes, names that are not UTF-8.
    """
    digests: dict[tuple[int, int], str] = {}
    found = [_entry(path, full, digests) for path, full in _walk(folder, "", (_identity(folder),))]
    return sorted(found, key=lambda entry: entry.path.encode())


def _entry(path: str, full: str, digests: dict[tuple[int, int], str]) -> Entry:
    """``digests``: of the files that were read before; one that is reached by two paths is read once."""
    # Not by open(): most steps write a few small files, and what it asks of the system costs more than the reading.
    file = os.open(full, os.O_RDONLY)
    try:
        status = os.fstat(file)
        inode = (status.st_dev, status.st_ino)
        digest = digests.get(inode)
        if digest is None:
            digest = digests[inode] = _sha256(file, min(status.st_size + 1, _READ_BYTES))
    finally:
        os.close(file)
    return Entry(path=path, bytes=status.st_size, sha256=digest)


def _sha256(file: int, read_bytes: int) -> str:
    total = hashlib.sha256()
    while part := os.read(file, read_bytes):
        total.update(part)
    return total.hexdigest()


def summarize(entries: list[Entry]) -> Manifest:
    """The summary of ``entries``. The digest is over their paths, sizes and digests, each with its length."""
    total = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path.encode()):
        path = entry.path.encode()
        total.update(struct.pack(">Q", len(path)) + path + struct.pack(">Q", entry.bytes) + bytes.fromhex(entry.sha256))
    return Manifest(files=len(entries), bytes=sum(entry.bytes for entry in entries), digest=total.hexdigest())


def _call(function: Callable[[Any], Any], config: Any) -> Any:
    """``function(config)``. A child that it forks, and that comes back here as well, is not the step: it ends."""
    process = os.getpid()
    try:
        return function(config)
    finally:
        if os.getpid() != process:
            print(
                "marin: a forked child has left the step function and is ended: let it call os._exit", file=sys.stderr
            )
            os._exit(1)


def _checked_artifact(returned: Any, artifact_type: type[A]) -> A:
    if isinstance(returned, artifact_type):
        return returned
    if returned is not None:
        raise OutputError(
            f"the step returned {type(returned).__name__}, but its artifact_type is {artifact_type.__name__}: "
            f"return {artifact_type.__name__}(...)"
        )
    required = [
        spec.name
        for spec in fields(artifact_type)
        if spec.init and spec.default is MISSING and spec.default_factory is MISSING
    ]
    if required:
        raise OutputError(
            f"the step returned None, but its artifact_type {artifact_type.__name__} needs {', '.join(required)}: "
            f"return {artifact_type.__name__}(...)"
        )
    return artifact_type()


def _check_folder(output_path: str) -> None:
    """Raise unless it is the folder that the step was given, with no name of ours in it."""
    try:
        mode = os.lstat(output_path).st_mode
    except FileNotFoundError:
        raise OutputError(
            f"the step has removed its own output folder {output_path}: write into it and leave it"
        ) from None
    if not stat.S_ISDIR(mode):
        # What lies behind a link is not ours to move.
        kind = "a link" if stat.S_ISLNK(mode) else "a file"
        raise OutputError(f"the step has put {kind} in place of its output folder {output_path}: write into the folder")
    for name in os.listdir(output_path):
        if name.startswith(_RESERVED):
            raise OutputError(f"the step wrote {name!r}, a name that is kept for Marin: write it under another name")


def _walk(root: str, inside: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, str]]:
    """Every file below ``root/inside``: its relative and its full path. ``above``: the folders on the way, by inode."""
    folder = os.path.join(root, inside) if inside else root
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{inside}/{entry.name}" if inside else entry.name
            if path == MANIFEST_FILE:
                continue
            _check_text(path)
            if entry.is_symlink():
                _check_link(os.path.realpath(root), path, entry.path)
            if entry.is_file():
                yield path, entry.path
            elif entry.is_dir():
                identity = _identity(entry.path)
                if identity in above:
                    raise OutputError(f"{path!r} is a link to a folder that contains it: link to something else")
                yield from _walk(root, path, (*above, identity))
            else:
                raise OutputError(
                    f"{path!r} is neither a file nor a folder, and can't be kept: remove it before returning"
                )


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _check_text(path: str) -> None:
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
