"""The step that downloads files from URLs."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from marin.errors import DataError
from marin.processing.durable import commit_file, read_remembered, write_whole
from marin.processing.http_origin import HttpOrigin
from marin.processing.input_files import file_sha256
from marin.processing.origins import Origin
from marin.processing.raw_download import FetchedFile, RawDownload, RawDownloadConfig, RemoteFile
from marin.processing.retrying import GaveUp, Retries, retried
from marin.processing.transfer import (
    Tally,
    Transfer,
    alone_in,
    arrived_bytes,
    check_room,
    partial_path,
    together,
)
from marin.processing.urls import WEB_SCHEMES

_PARTIAL = ".partial"
"""Folder of what is on its way, and of what is known of the files that have arrived."""


class _Sized(Origin, Protocol):
    """An origin that can tell the size beforehand."""

    def size(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class WebClient:
    """How servers are asked. ``stall``: seconds without a byte before it counts as a cut."""

    retries: Retries = field(default_factory=Retries)
    stall: float = 30.0


def download(config: RawDownloadConfig, *, client: WebClient | None = None) -> RawDownload:
    """Fetch the files, or those that an earlier attempt did not.

    Raises ``DataError`` if one can't be had, or has twice not the sha256 that it must have; ``NotEnoughResourcesError``
    if the disk has no room for what is still to come, as far as the servers tell sizes.
    """
    asking = client or WebClient()
    root = config.output_path
    scratch = os.path.join(root, _PARTIAL)
    with alone_in(scratch):
        arrivals = [_Arrival(file=file, root=root, scratch=scratch, client=asking) for file in config.files]
        kept = together([lambda stop, arrival=arrival: arrival.kept() for arrival in arrivals])
        missing = [arrival for arrival, file in zip(arrivals, kept, strict=True) if file is None]
        sizes = together([arrival.size for arrival in missing])
        here = [arrived_bytes(arrival.waiting) for arrival in missing]
        to_come = sum(max(0, (size or 0) - begun) for size, begun in zip(sizes, here, strict=True))
        check_room(root, to_come, what=f"{len(missing)} of {len(arrivals)} files")
        done = sum(file.bytes for file in kept if file is not None)
        tally = Tally(done + sum(size or 0 for size in sizes))
        tally.add(done, "")
        fetched = together([partial(arrival.fetch, size, tally) for arrival, size in zip(missing, sizes, strict=True)])
        shutil.rmtree(scratch)
    by_name = {file.name: file for file in (*kept, *fetched) if file is not None}
    return RawDownload(files=tuple(by_name[file.name] for file in config.files))


@dataclass(frozen=True, kw_only=True)
class _Arrival:
    """One file, on its way or at its place."""

    file: RemoteFile
    root: str
    scratch: str
    client: WebClient

    @property
    def waiting(self) -> str:
        return partial_path(self.scratch, self.file.name)

    @property
    def place(self) -> str:
        return os.path.join(self.root, self.file.name)

    @property
    def memory(self) -> str:
        return f"{self.waiting}.fetched"

    def origin(self) -> _Sized:
        if self.file.url.partition("://")[0] in WEB_SCHEMES:
            return HttpOrigin(
                url=self.file.url, name=self.file.name, stall=self.client.stall, now=self.client.retries.now
            )
        # Only who reads an object store needs its libraries.
        from marin.processing.object_origin import ObjectOrigin  # noqa: PLC0415

        return ObjectOrigin(url=self.file.url)

    def kept(self) -> FetchedFile | None:
        """What an earlier attempt has brought, if it is still what it was."""
        fetched = read_remembered(self.memory, FetchedFile)
        if fetched is None or not os.path.isfile(self.place):
            return None
        same = fetched.url == self.file.url and self.file.sha256 in (None, fetched.sha256)
        return fetched if same and file_sha256(self.place) == fetched.sha256 else None

    def size(self, stop: threading.Event) -> int | None:
        origin = self.origin()
        with self._given_up():
            return retried(origin.size, self.client.retries, what=origin.shown, stop=stop)

    def fetch(self, size: int | None, tally: Tally, stop: threading.Event) -> FetchedFile:
        origin = self.origin()
        fault_of = None if self.file.sha256 is None else partial(_fault_of, sha256=self.file.sha256)
        transfer = Transfer(
            origin,
            self.waiting,
            size=size,
            size_now=origin.size,
            fault_of=fault_of,
            remedy="If its owner has changed it, give the new sha256; else something on the way changes it",
            tally=tally,
        )
        with self._given_up():
            transfer.run(self.client.retries, stop)
        fetched = FetchedFile(
            name=self.file.name,
            url=self.file.url,
            bytes=os.path.getsize(self.waiting),
            sha256=file_sha256(self.waiting),
        )
        write_whole(self.memory, msgspec.json.encode(fetched))
        os.makedirs(os.path.dirname(self.place), exist_ok=True)
        commit_file(self.waiting, self.place)
        return fetched

    @contextlib.contextmanager
    def _given_up(self) -> Generator[None, None, None]:
        try:
            yield
        except GaveUp as fault:
            raise DataError(f"{self.origin().shown} can't be downloaded: {fault}") from fault


def _fault_of(path: str, *, sha256: str) -> str | None:
    found = file_sha256(path)
    return None if found == sha256 else f"its sha256 is {found}, and must be {sha256}"
