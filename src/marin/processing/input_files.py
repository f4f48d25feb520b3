"""Find the input files that a source means."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from marin.errors import ConfigurationError, DataError
from marin.execution.redaction import shown_place
from marin.processing.near import near_names
from marin.processing.remote_files import RemoteFile, is_folder, open_remote, remote_files, remote_stamp
from marin.processing.sources import (
    COLUMNAR,
    FORMAT_BY_SUFFIX,
    GLOB_CHARACTERS,
    FileFormat,
    FileSource,
    is_url,
    split_suffixes,
)

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file to read. ``path`` may be a URL. ``name`` is what records and messages call it, ``size`` its bytes on the
    disk, 0 where a server does not tell. ``stamp`` changes when the file does, ``None`` where nothing tells that."""

    path: str
    name: str
    format: FileFormat
    compression: str | None
    size: int
    stamp: str | None = None

    @property
    def shown(self) -> str:
        """The name in one line, also where it has line ends in it."""
        return _shown(self.name)


def input_files(source: FileSource) -> list[InputFile]:
    """The files that ``source`` means, each once, in a fixed order.

    Relative paths are resolved against the current folder. Raises ``DataError`` for a path or glob that matches
    nothing or can't be read, and ``ConfigurationError`` for a file whose format its name does not tell. Links to
    folders are followed, each folder once.
    """
    left_out = _left_out(source.exclude)
    found: dict[str, InputFile] = {}
    for pattern in source.paths:
        for file in _files(pattern, source):
            real = file.path if is_url(file.path) else os.path.realpath(file.path)
            if not _is_below(real, left_out):
                found.setdefault(real, file)
    if not found:
        paths, exclude = (list(map(shown_place, each)) for each in (source.paths, source.exclude))
        raise DataError(f"no files are left of {', '.join(paths)}: exclude={exclude} takes them all")
    return list(found.values())


def open_file(file: InputFile) -> BinaryIO:
    """The bytes of ``file`` as they lie on the disk, or at its URL. Raises ``DataError`` if they can't be had."""
    return _open(file.path, file.size)


def current_stamp(file: InputFile) -> str | None:
    """The stamp that ``file`` has now. Raises ``DataError`` if it is there no more."""
    if is_url(file.path):
        return remote_stamp(file.path)
    try:
        return _stamp(os.stat(file.path))
    except OSError as fault:
        _unreadable(file.path, fault)


def file_sha256(path: str) -> str:
    """Digest of the content at a path or URL, in hex. Raises ``DataError`` if it can't be read, or is there no more."""
    digest = hashlib.sha256()
    with _open(path, 0) as stream:
        try:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        except OSError as fault:
            _unreadable(path, fault)
    return digest.hexdigest()


def _open(path: str, size: int) -> BinaryIO:
    if is_url(path):
        return open_remote(path, size)
    try:
        return open(path, "rb")
    except OSError as fault:
        _unreadable(path, fault)


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_ino}-{status.st_size}"


def _left_out(patterns: tuple[str, ...]) -> set[str]:
    here = [os.path.abspath(os.path.expanduser(pattern)) for pattern in patterns if not is_url(pattern)]
    remote = [pattern for pattern in patterns if is_url(pattern)]
    found = {os.path.realpath(path) for pattern in here for path in _matches(pattern)}
    return found | {file.url for pattern in remote for file in remote_files(pattern)}


def _files(pattern: str, source: FileSource) -> list[InputFile]:
    if not is_url(pattern):
        return [_input_file(path, source) for path in _expand(pattern, source)]
    found = remote_files(pattern)
    if not found:
        raise DataError(
            f"{shown_place(pattern)!r} matches no file: check the address; a folder is named as it is, "
            "a glob has *, as in s3://bucket/data/*.jsonl"
        )
    if is_folder(pattern):
        known = [file for file in found if source.format or split_suffixes(file.url)[0]]
        if not known:
            _no_known_suffix(shown_place(pattern), source)
        found = known
    return [_remote_input_file(file, source) for file in found]


def _no_known_suffix(folder: str, source: FileSource) -> NoReturn:
    raise DataError(
        f"the folder {folder} has no file with a known suffix ({', '.join(FORMAT_BY_SUFFIX)}): "
        f"say {source.text_option} if each of its files is one document, or give a glob"
    )


def _expand(pattern: str, source: FileSource) -> list[str]:
    absolute = os.path.abspath(os.path.expanduser(pattern))
    if os.path.isdir(absolute):
        below = sorted(files_below(absolute), key=os.fsencode)
        if known := [path for path in below if source.format or split_suffixes(path)[0]]:
            return known
        _no_known_suffix(absolute, source)
    found = _matches(absolute)
    if matches := [path for path in found if not os.path.isdir(path)]:
        return matches
    if found:
        raise DataError(f"{pattern!r} matches folders only, such as {found[0]}: add '/*' or '/**/*.jsonl' to it")
    raise DataError(f"{pattern!r} matches no file ({_nearest(absolute)})")


def _matches(absolute: str) -> list[str]:
    # A name with brackets or stars that exists is meant as it is.
    if os.path.lexists(absolute):
        return [absolute]
    return sorted(_globbed(absolute), key=os.fsencode)


def _globbed(pattern: str) -> set[str]:
    # glob's own ** goes through links in circles, and passes over folders that can't be read.
    pattern = f"{pattern}/*" if pattern.endswith("/**") else pattern
    above, recursive, below = pattern.partition("/**/")
    if not recursive:
        for folder in glob.glob(os.path.dirname(pattern)):
            if os.path.isdir(folder) and not _may_list(folder):
                raise DataError(f"the folder {_shown(folder)} can't be read: mend its permissions, or name others")
        return set(glob.glob(pattern))
    roots = [path for path in glob.glob(above or "/") if os.path.isdir(path)]
    folders = [folder for root in roots for folder, _ in _walk(root)]
    return {path for folder in folders for path in _globbed(os.path.join(glob.escape(folder), below))}


def files_below(folder: str) -> Iterator[str]:
    """The paths of all files in ``folder`` and the folders within, but for what is hidden. ``DataError`` if one can't
    be listed."""
    yield from (os.path.join(parent, name) for parent, names in _walk(folder) for name in names)


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    """Each folder below ``root``, itself included, once, and its files. What is hidden is left out."""

    def refuse(fault: OSError) -> None:
        _unreadable(fault.filename, fault)

    seen = set[str]()
    for parent, folders, names in os.walk(root, followlinks=True, onerror=refuse):
        real = os.path.realpath(parent)
        # In a fixed order: of a folder with two names, the first counts.
        folders[:] = [] if real in seen else sorted(each for each in folders if not each.startswith("."))
        if real not in seen:
            seen.add(real)
            yield parent, [name for name in names if not name.startswith(".")]


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
    if not _may_list(parent):
        return f"the folder {parent} exists, but its permissions forbid to read it"
    looked_for = absolute[len(parent) :].lstrip("/")
    first = looked_for.split("/")[0]
    found = os.path.lexists(os.path.join(parent, first))
    near = "" if found else near_names(parent, first)
    hub_hint = "; a hub id is written 'organisation/name', or hf(...)" if "/" in looked_for else ""
    hint = f"; did you mean {near}?" if near else hub_hint
    return f"the folder {parent} exists, {looked_for!r} is not in it{hint}"


def _chosen(path: str, source: FileSource) -> tuple[FileFormat, str | None]:
    by_suffix, compression = split_suffixes(path)
    chosen = source.format or by_suffix
    if chosen is None:
        raise ConfigurationError(
            f"{shown_place(path)}: its suffix names no format ({', '.join(FORMAT_BY_SUFFIX)}, plain or .gz .zst .bz2 "
            f".xz): say {source.text_option} if it is one document, or leave the file out with "
            "exclude="
        )
    if chosen in COLUMNAR and compression:
        raise ConfigurationError(
            f"{shown_place(path)}: a {chosen} file compresses within itself, and is not read through {compression}: "
            "unpack it, or leave it out with exclude="
        )
    return chosen, compression


def _remote_input_file(file: RemoteFile, source: FileSource) -> InputFile:
    name = shown_place(file.url)
    chosen, compression = _chosen(file.url, source)
    return InputFile(path=file.url, name=name, format=chosen, compression=compression, size=file.size, stamp=file.stamp)


def _input_file(path: str, source: FileSource) -> InputFile:
    chosen, compression = _chosen(path, source)
    _check_name(path)
    try:
        status = os.stat(path)
    except OSError as fault:
        if os.path.islink(path) and not isinstance(fault, PermissionError):
            raise DataError(
                f"{_shown(path)} is a link to a file that is not there: mend it, or leave it out with exclude="
            ) from None
        _unreadable(path, fault)
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{_shown(path)} is a pipe or device, which can't be read twice: write it to a file first")
    return InputFile(
        path=path, name=path, format=chosen, compression=compression, size=status.st_size, stamp=_stamp(status)
    )


def _may_list(folder: str) -> bool:
    return os.access(folder, os.R_OK | os.X_OK, effective_ids=True)


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{path!r}: the name is not UTF-8, so no record can hold it: rename the file, or leave it out with exclude="
        ) from None


def _unreadable(path: str, fault: OSError) -> NoReturn:
    if isinstance(fault, FileNotFoundError):
        raise DataError(
            f"{_shown(path)} is there no more: run again when nobody changes the folder, or leave it out with exclude="
        ) from fault
    raise DataError(
        f"{_shown(path)} can't be read: {fault.strerror}; mend that, or leave it out with exclude="
    ) from fault


def _shown(name: str) -> str:
    return name if name.isprintable() else repr(name)
