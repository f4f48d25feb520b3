"""Find the input files that a source means."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from marin.errors import ConfigurationError, DataError
from marin.processing.sources import FORMAT_BY_SUFFIX, GLOB_CHARACTERS, FileFormat, FileSource, split_suffixes


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file to read. ``name`` is what records and messages call it, ``size`` its bytes on the disk."""

    path: str
    name: str
    format: FileFormat
    compression: str | None
    size: int


def input_files(source: FileSource) -> list[InputFile]:
    """The files that ``source`` means, each once, in a fixed order.

    Relative paths are resolved against the current folder. Raises ``DataError`` for a path or glob that matches
    nothing and ``ConfigurationError`` for a file whose format its name does not tell.
    """
    excluded = [os.path.abspath(os.path.expanduser(pattern)) for pattern in source.exclude]
    left_out = {os.path.realpath(path) for pattern in excluded for path in _matches(pattern)}
    found: dict[str, InputFile] = {}
    for pattern in source.paths:
        for path in _expand(pattern, source.format):
            real = os.path.realpath(path)
            if not _is_below(real, left_out):
                found.setdefault(real, _input_file(path, source.format))
    if not found:
        raise DataError(
            f"no files are left of {', '.join(source.paths)}: exclude={list(source.exclude)} takes them all"
        )
    return list(found.values())


def file_sha256(path: str) -> str:
    """Digest of a file's content, in hex."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _expand(pattern: str, format: FileFormat | None) -> list[str]:
    absolute = os.path.abspath(os.path.expanduser(pattern))
    if os.path.isdir(absolute):
        below = sorted(_files_below(absolute), key=os.fsencode)
        if known := [path for path in below if format or split_suffixes(path)[0]]:
            return known
        raise DataError(
            f"the folder {absolute} has no file with a known suffix ({', '.join(FORMAT_BY_SUFFIX)}): "
            "give a glob, and files(..., format='text') if each file is one document"
        )
    if matches := [path for path in _matches(absolute) if not os.path.isdir(path)]:
        return matches
    raise DataError(f"{pattern!r} matches no file ({_nearest(absolute)})")


def _matches(absolute: str) -> list[str]:
    # A name with brackets or stars that exists is meant as it is.
    if os.path.lexists(absolute):
        return [absolute]
    return sorted(glob.glob(absolute, recursive=True), key=os.fsencode)


def _files_below(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(parent, name) for name in names if not name.startswith("."))


def _is_below(path: str, roots: set[str]) -> bool:
    while path not in roots:
        parent = os.path.dirname(path)
        if parent == path:
            return False
        path = parent
    return True


def _nearest(absolute: str) -> str:
    parent = absolute
    while not os.path.isdir(parent) or GLOB_CHARACTERS & set(parent):
        parent = os.path.dirname(parent)
    looked_for = absolute[len(parent) :].lstrip("/")
    hint = "; a hub id is written 'organisation/name', or hf(...)" if looked_for.count("/") else ""
    return f"the folder {parent} exists, {looked_for!r} is not in it{hint}"


def _input_file(path: str, format: FileFormat | None) -> InputFile:
    by_suffix, compression = split_suffixes(path)
    chosen = format or by_suffix
    if chosen is None:
        raise ConfigurationError(
            f"{path}: its suffix names no format ({', '.join(FORMAT_BY_SUFFIX)}, plain or .gz .zst .bz2 .xz): "
            "say it with files(..., format='text'), or leave the file out with exclude="
        )
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        raise DataError(
            f"{path} is a link to a file that is not there: mend it, or leave it out with exclude="
        ) from None
    return InputFile(path=path, name=path, format=chosen, compression=compression, size=size)
