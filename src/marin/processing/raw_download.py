"""Describe a download from URLs: the artifact and the config of the step. The work is in ``download_raw``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast
from urllib.parse import unquote, urlsplit

from marin.errors import ConfigurationError, DataError
from marin.execution.artifact import Artifact
from marin.processing.near import near_of
from marin.processing.urls import checked_url

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_OTHER_DIGESTS = {32: "an md5", 40: "a sha1", 128: "a sha512"}
_LONGEST_NAME = 255
"""Bytes of a part of a path that file systems take."""
_SHOWN = 100
_OF_URL = object()
"""In place of a name: the one that its URL ends with."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file to fetch: the name that it gets, where it is, and the sha256 that it must have, if that is known."""

    fingerprint_name: ClassVar[str] = "marin.RemoteFile"

    name: str
    url: str
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class RawDownloadConfig:
    """What the step is asked to fetch."""

    fingerprint_name: ClassVar[str] = "marin.RawDownloadConfig"

    output_path: str
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True, kw_only=True)
class FetchedFile:
    """One file: its name below the artifact, where it came from, its bytes, and the sha256 of its content."""

    name: str
    url: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class RawDownload(Artifact):
    """Files from URLs, at ``path``."""

    fingerprint_name: ClassVar[str] = "marin.RawDownload"

    files: tuple[FetchedFile, ...]

    def verify(self) -> None:
        """Raise ``DataError`` unless every file lies at ``path`` in full."""
        for file in self.files:
            path = os.path.join(self.path, file.name)
            if not os.path.isfile(path) or os.path.getsize(path) != file.bytes:
                raise DataError(f"{path} is missing or has not {file.bytes:,} bytes: download it again")


def remote_files(
    name: str, urls: str | Sequence[str] | Mapping[str, str], sha256: str | Mapping[str, str] | None
) -> tuple[RemoteFile, ...]:
    """The files that ``urls`` mean, in the order given. ``ConfigurationError`` in the name of ``name``.

    >>> remote_files("raw/a", "https://example.org/data/a%20b.jsonl?download=1", None)
    (RemoteFile(name='a b.jsonl', url='https://example.org/data/a%20b.jsonl?download=1', sha256=None),)
    """
    given = _named(name, urls)
    digests = _digests(name, sha256, list(given.values()))
    return tuple(RemoteFile(name=file, url=url, sha256=digests.get(url)) for file, url in given.items())


def _pairs(name: str, urls: object) -> list[tuple[object, object]]:
    """Name, if one is given, and URL of each file."""
    match urls:
        case str():
            return [(_OF_URL, urls)]
        case Mapping():
            return list(cast("Mapping[object, object]", urls).items())
        # Of a set the order is another one in each process, and an iterator can be read once.
        case Sequence() if not isinstance(urls, bytes | bytearray | memoryview):
            return [(_OF_URL, url) for url in cast("Sequence[object]", urls)]
        case _:
            raise ConfigurationError(
                f"{name}: urls={urls!r} is neither a URL, nor a list of them, nor {{name: URL}} for names of your own"
            )


def _named(name: str, urls: object) -> dict[str, str]:
    pairs = _pairs(name, urls)
    if not pairs:
        raise ConfigurationError(f"{name}: urls= is empty; give the URLs of the files")
    found = dict[str, str]()
    for given, address in pairs:
        url = checked_url(name, address)
        file = _file_name(name, unquote(urlsplit(url).path).rsplit("/", 1)[-1] if given is _OF_URL else given, url)
        if file in found:
            raise ConfigurationError(
                f"{name}: {found[file]} and {url} would both be called {file!r}: "
                f"give names: urls={{'one-{file}': ..., 'other-{file}': ...}}"
            )
        found[file] = url
    _check_nesting(name, list(found))
    return found


def _file_name(name: str, file: object, url: str) -> str:
    if isinstance(file, str):
        parts = file.split("/")
        fits = all(0 < len(part.encode(errors="replace")) <= _LONGEST_NAME for part in parts)
        if fits and file.isprintable() and not file.startswith(".") and not {".", ".."} & set(parts):
            return file
    shown = "has no file name at its end" if file == "" else f"{_short(file)} is no name for a file"
    raise ConfigurationError(f"{name}: {url}: {shown}; give one: urls={{'name.jsonl': {url!r}}}")


def _check_nesting(name: str, files: list[str]) -> None:
    for file in files:
        if inside := next((other for other in files if other.startswith(f"{file}/")), None):
            raise ConfigurationError(f"{name}: {file!r} is a file, and {inside!r} would lie in it: choose other names")


def _digests(name: str, sha256: object, urls: list[str]) -> dict[str, str]:
    match sha256:
        case None:
            return {}
        case str():
            if len(urls) != 1:
                raise ConfigurationError(
                    f"{name}: sha256= is one text, and there are {len(urls)} urls: write {{url: sha256}}"
                )
            given: Mapping[object, object] = {urls[0]: sha256}
        case Mapping():
            given = cast("Mapping[object, object]", sha256)
        case _:
            raise ConfigurationError(f"{name}: sha256={sha256!r} is neither a text of 64 digits nor {{url: sha256}}")
    for url in given:
        if url not in urls:
            near = near_of(url, urls) if isinstance(url, str) else ""
            hint = f"; it is near {near}" if near else ""
            raise ConfigurationError(f"{name}: sha256= has {url!r}, which is not among the urls{hint}")
    return {str(url): _digest(name, str(url), digest) for url, digest in given.items()}


def _digest(name: str, url: str, digest: object) -> str:
    if isinstance(digest, str) and _SHA256.fullmatch(digest):
        return digest.lower()
    hint = ""
    if isinstance(digest, str):
        bare = digest.strip().removeprefix("sha256:")
        if _SHA256.fullmatch(bare):
            hint = f"; write {bare!r}"
        elif other := _OTHER_DIGESTS.get(len(bare)):
            hint = f"; of {len(bare)} digits it may be {other}: tell it by what 'sha256sum' prints"
    raise ConfigurationError(f"{name}: the sha256 of {url} is {digest!r}, not 64 hexadecimal digits{hint}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
