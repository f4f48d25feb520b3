"""Files at URLs, through fsspec: which there are, what tells that one has changed, their bytes.

A fault of the network is never taken for the end of a file: reading is tried again, and then it is a ``DataError``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

import fsspec
import fsspec.core
import fsspec.utils
import tenacity

from marin.errors import ConfigurationError, DataError, MarinError
from marin.execution.redaction import shown_place
from marin.processing.remote_faults import TRIES, asked_seconds, explained, is_missing, may_pass
from marin.processing.sources import GLOB_CHARACTERS

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_STAMPS = ("ETag", "etag", "md5Hash", "checksum", "Content-MD5", "mtime", "LastModified", "last_modified", "updated")
_STAMPS_OF_LAST_RESORT = ("Last-Modified", "created")
_GLOB_OF_WEB = re.compile(r"[*[]")
_READ_AHEAD = 8 << 20
_LONGEST_PAUSE = 30.0
_DEEPEST_FOLDER = 32
"""Below it a web server is taken for one that answers any address with the same page."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file at a URL. ``size`` is 0 and ``stamp`` is ``None`` where its server does not tell."""

    url: str
    size: int
    stamp: str | None


def remote_files(pattern: str) -> list[RemoteFile]:
    """The files that a URL means, sorted: itself, those below a folder, those that match a glob. Hidden ones below a
    folder are left out. Raises ``DataError`` if its server does not say."""
    system, path = _system(pattern)
    found = list[dict[str, Any]]()
    try:
        system.invalidate_cache()
        entries = _entries(system, path, pattern)
        found = [entry for entry in entries if entry.get("type") != "directory"]
    except Exception as fault:
        if not is_missing(fault):
            raise explained(pattern, fault) from fault
    files = {file.url: file for file in (_remote_file(system, entry, pattern) for entry in found)}
    return [files[url] for url in sorted(files, key=os.fsencode)]


def is_folder(url: str) -> bool:
    """Whether ``url`` means all that lies below it. On a web server it does if it ends with a slash."""
    system, path = _system(url)
    if urlsplit(url).scheme in ("http", "https"):
        return url.endswith("/")
    with _plainly(url):
        return _tried(lambda: bool(system.isdir(path)))


def remote_stamp(url: str) -> str | None:
    """What changes when the file at ``url`` does, ``None`` if its server tells nothing of the kind."""
    system, path = _system(url)
    with _plainly(url):
        system.invalidate_cache()
        return _stamp(_tried(lambda: system.info(path)))


def can_seek(url: str) -> bool:
    """Whether any part of the file can be read on its own. Few web servers can't, and not all of those say so."""
    system, path = _system(url)
    if urlsplit(url).scheme not in ("http", "https"):
        return True
    with _plainly(url):
        info = _tried(lambda: system.info(path))
        if info.get("partial") is False or not info.get("size"):
            return False
        return info["size"] == 1 or bool(_tried(lambda: _second_byte(system, path, info["size"])))


def open_remote(url: str, size: int) -> BinaryIO:
    """The bytes at ``url``. Raises ``DataError`` for what goes wrong, here and at each read."""
    return cast("BinaryIO", _Stream(url, size))


class _Stream(io.RawIOBase):
    """Opened anew, at the place reached, when a read fails."""

    def __init__(self, url: str, size: int) -> None:
        super().__init__()
        self._url, self._size, self._at = url, size, 0
        self._ranges = can_seek(url)
        self._system, self._path = _system(url)
        self._file: Any = None
        self._file_at = 0
        with _plainly(url):
            _tried(self._open)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._ranges

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        with _plainly(self._url):
            data = _tried(lambda: self._read(len(buffer)))
        if not data and self._at < self._size and len(buffer):
            raise DataError(
                f"{shown_place(self._url)} ended after {self._at:,} of {self._size:,} bytes: "
                "run again when nobody writes to it"
            )
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._drop()
        super().close()

    def _open(self) -> None:
        self._file = self._system.open(self._path, "rb", block_size=_READ_AHEAD if self._ranges else 0)
        self._file_at = 0

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _read(self, size: int) -> bytes:
        try:
            if self._file is None or (self._file_at > self._at and not self._ranges):
                self._drop()
                self._open()
            file: Any = self._file
            if self._file_at != self._at and self._ranges:
                file.seek(self._at)
                self._file_at = self._at
            while self._file_at < self._at and self._file_read(min(self._at - self._file_at, _READ_AHEAD)):
                pass
            return self._file_read(size)
        except Exception:
            self._drop()
            raise

    def _file_read(self, size: int) -> bytes:
        data = cast("bytes", self._file.read(size))
        self._file_at += len(data)
        return data


def _second_byte(system: Any, path: str, size: int) -> bytes:
    """Nothing if the server answers with the whole file."""
    with system.open(path, "rb", block_size=1, cache_type="none", size=size) as file:
        file.seek(1)
        try:
            return file.read(1)
        except ValueError:  # what fsspec raises for such an answer
            return b""


def _tried(act: Callable[[], Any]) -> Any:
    """What ``act`` returns, also if its first attempts fail."""
    wanted, stop = tenacity.retry_if_exception(may_pass), tenacity.stop_after_attempt(TRIES)
    return tenacity.Retrying(stop=stop, wait=_pause, retry=wanted, reraise=True)(act)


def _pause(state: tenacity.RetryCallState) -> float:
    """Seconds: what the server asks for, within reason."""
    fault = state.outcome.exception() if state.outcome else None
    asked = 0.0 if fault is None else asked_seconds(fault)
    return min(max(asked, 0.25 * 2 ** (state.attempt_number - 1)), _LONGEST_PAUSE)


def _system(url: str) -> tuple[Any, str]:
    with _plainly(url):
        return _tried(lambda: _new_system(url))


def _new_system(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0].lower()
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as fault:
        extra = f": pip install 'marin[{_EXTRAS[scheme]}]'" if scheme in _EXTRAS else f" ({fault})"
        raise ConfigurationError(f"{shown_place(url)!r}: the driver for {scheme}:// is not installed{extra}") from fault
    except ValueError as fault:
        raise ConfigurationError(
            f"{shown_place(url)!r}: nothing is known that reads {scheme}:// ({fault}): use http(s)://, s3://, gs://, "
            "or another scheme of fsspec, or download the files and give their path"
        ) from fault
    return system, cast("str", path)


def _entries(system: Any, path: str, pattern: str) -> list[dict[str, Any]]:
    if urlsplit(pattern).scheme in ("http", "https"):
        return _web_entries(system, path)
    if GLOB_CHARACTERS & set(path) and not _tried(lambda: system.exists(path)):
        return list(_tried(lambda: system.glob(path, detail=True)).values())
    if _tried(lambda: bool(system.isdir(path))):
        below = _tried(lambda: system.find(path, detail=True))
        return [entry for name, entry in below.items() if not _is_hidden(name.removeprefix(path))]
    return [_tried(lambda: system.info(path))]


def _web_entries(system: Any, path: str) -> list[dict[str, Any]]:
    # A question mark begins the query.
    if begin := _GLOB_OF_WEB.search(path):
        root, below = path[: begin.start()].rpartition("/")[0], path[begin.start() :]
        found = _linked(system, f"{root}/", None if "**" in below else below.count("/") + 1)
        matched = re.compile(fsspec.utils.glob_translate(path))
        return [entry for entry in found if matched.match(str(entry["name"]))]
    if path.endswith("/"):
        return [entry for entry in _linked(system, path, None) if not _is_hidden(str(entry["name"]).removeprefix(path))]
    return [_tried(lambda: system.info(path))]


def _linked(system: Any, folder: str, depth: int | None, above: int = 0) -> Iterator[dict[str, Any]]:
    """The files that the page of a folder has links to, and those below. fsspec's own search passes over a folder whose
    server does not answer."""
    if above > _DEEPEST_FOLDER:
        raise DataError(
            f"{shown_place(folder)} is the {above}th folder within another: its server seems to answer any address "
            "with the same page; name the files themselves"
        )
    for entry in _tried(lambda: system.ls(folder, detail=True)):
        name = str(entry["name"])
        if entry.get("type") != "directory":
            yield entry
        elif depth != 1 and name.rstrip("/") != folder.rstrip("/"):
            try:
                yield from _linked(system, name, None if depth is None else depth - 1, above + 1)
            except FileNotFoundError:  # a link that leads nowhere
                continue


def _is_hidden(below: str) -> bool:
    return any(part.startswith(".") for part in below.split("/"))


def _remote_file(system: Any, entry: Mapping[str, Any], pattern: str) -> RemoteFile:
    name = str(entry["name"])
    url = name if "://" in name else f"{pattern.partition('://')[0]}://{name}"
    if entry.get("size") is None:  # a listing of a web server has names only
        with _plainly(url):
            entry = _tried(lambda: system.info(name))
    return RemoteFile(url=url, size=int(entry.get("size") or 0), stamp=_stamp(entry))


def _stamp(info: Mapping[str, Any]) -> str | None:
    known = [info.get(key) for key in _STAMPS if info.get(key)] or [info.get(key) for key in _STAMPS_OF_LAST_RESORT]
    stamp = next((str(value) for value in known if value), None)
    return None if stamp is None else f"{stamp} {info.get('size')}"


@contextlib.contextmanager
def _plainly(url: str) -> Generator[None, None, None]:
    """Whatever a file system raises in the block, and each has errors of its own, becomes one plain line."""
    try:
        yield
    except MarinError:
        raise
    except Exception as fault:
        raise explained(url, fault) from fault
