"""Answers of web servers that look like the file and are not, or not all of it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin.errors import DataError
from marin.processing.download_raw import WebClient, download
from marin.processing.raw_download import RawDownload, RawDownloadConfig, remote_files
from marin.processing.retrying import Retries
from marin.processing.transfer import partial_path
from tests.executors.processes import PATIENCE
from tests.processing.file_server import Event, FileServer
from tests.processing.waits import Waits

BIG, SMALL = "data/a.bin", "data/b.jsonl"
FILES = {BIG: os.urandom(3_000_000), SMALL: b"{}\n" * 100}
SIZE = Event()
"""What the question for the size gets: nothing out of the way."""
CUT = Event(cut_after=1_000_000)
UNSIZED = {"Content-Length": None}


@pytest.fixture
def server() -> Iterator[FileServer]:
    server = FileServer(dict(FILES))
    with server.serve():
        yield server


def get(server: FileServer, folder: Path, urls: Any, sha256: Any = None, **changes: Any) -> RawDownload:
    """``urls``: a path on the server, or a name for each."""
    given = {urls.rsplit("/")[-1]: urls} if isinstance(urls, str) else urls
    files = remote_files("raw/x", {name: f"{server.endpoint}/{path}" for name, path in given.items()}, sha256)
    retries = Retries(wait=changes.pop("waits", Waits()), **changes)
    return download(
        RawDownloadConfig(output_path=str(folder / "out"), files=files),
        client=WebClient(retries=retries, stall=PATIENCE),
    )


def arrived(folder: Path) -> dict[str, bytes]:
    out = folder / "out"
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


# A size that was told, and other bytes


@pytest.mark.parametrize("changed", [UNSIZED, {**UNSIZED, "ETag": None}])
def test_an_end_without_a_length_is_no_end_before_the_size_that_was_told(
    server: FileServer, tmp_path: Path, changed: Any
):
    server.events[BIG] = [
        SIZE,
        Event(cut_after=1_000_000, changed=changed),
        Event(cut_after=2_000_000, changed=changed),
    ]
    get(server, tmp_path, BIG)
    assert arrived(tmp_path) == {"a.bin": FILES[BIG]}


def test_chunks_that_are_cut_are_no_whole_file(server: FileServer, tmp_path: Path):
    chunked = Event(body=b"64\r\n" + FILES[SMALL][:100], changed={**UNSIZED, "Transfer-Encoding": "chunked"})
    server.events[SMALL] = [SIZE, chunked]
    get(server, tmp_path, SMALL)
    assert arrived(tmp_path) == {"b.jsonl": FILES[SMALL]}


def test_a_length_beside_chunks_means_nothing(server: FileServer, tmp_path: Path):
    body = b"12c\r\n" + FILES[SMALL] + b"\r\n0\r\n\r\n"
    server.events[SMALL] = [SIZE, Event(body=body, changed={"Transfer-Encoding": "chunked"})]
    waits = Waits()
    get(server, tmp_path, SMALL, waits=waits)
    assert arrived(tmp_path) == {"b.jsonl": FILES[SMALL]}
    assert waits.seconds == []


class Short(FileServer):
    """Tells the size, and always sends another number of bytes."""

    sent: bytes = b""
    changed: Any = None

    def send_file(self, request: Any, data: bytes, headers: dict[str, str], event: Event) -> None:
        if request.headers.get("Range") == "bytes=0-0":
            return super().send_file(request, data, headers, event)
        return self.send(request, 200, headers, self.sent, Event(changed=self.changed or {}))


@pytest.mark.parametrize(
    ("sent", "changed", "reason"),
    [
        (b"", {}, "the server has said that it has 300 bytes, and sends 0"),
        (b"x" * 200, {}, "the server has said that it has 300 bytes, and sends 200"),
        (b"x" * 400, {}, "the server has said that it has 300 bytes, and sends 400"),
        (b"", UNSIZED, "the connection ended after 0 of 300 bytes"),
        (b"x" * 200, UNSIZED, "the connection ended after 200 of 300 bytes"),
        (b"x" * 400, UNSIZED, "more than the 300 bytes that were announced came"),
    ],
)
def test_a_server_that_contradicts_its_own_size_is_refused(tmp_path: Path, sent: bytes, changed: Any, reason: str):
    server = Short({SMALL: FILES[SMALL]})
    server.sent, server.changed = sent, changed
    with server.serve(), pytest.raises(DataError, match=rf"b\.jsonl can't be downloaded: {reason}: .*\(tried 8 times"):
        get(server, tmp_path, SMALL)
    assert "b.jsonl" not in arrived(tmp_path)


@pytest.mark.parametrize("changed", [{}, UNSIZED], ids=["sized", "unsized"])
@pytest.mark.parametrize("size", [0, 200, 400])
def test_a_file_that_is_replaced_after_its_size_was_told_arrives_as_it_is_now(
    server: FileServer, tmp_path: Path, size: int, changed: Any
):
    newer = os.urandom(size)
    server.events[SMALL] = [SIZE] + [Event(body=newer, changed=changed), Event(body=newer)] * 4
    get(server, tmp_path, SMALL)
    assert arrived(tmp_path) == {"b.jsonl": newer}


def test_what_has_arrived_of_another_size_than_is_told_now_is_not_served(server: FileServer, tmp_path: Path):
    server.events[SMALL] = [SIZE, Event(cut_after=200), Event(status=403)]
    with pytest.raises(DataError):
        get(server, tmp_path, SMALL)
    server.files[SMALL] = os.urandom(200)  # as many as have arrived of the other
    get(server, tmp_path, SMALL)
    assert arrived(tmp_path) == {"b.jsonl": server.files[SMALL]}


class Careless(FileServer):
    """Ignores ``If-Range``."""

    def send_file(self, request: Any, data: bytes, headers: dict[str, str], event: Event) -> None:
        del request.headers["If-Range"]
        super().send_file(request, data, headers, event)


def test_what_is_as_long_by_now_as_what_has_arrived_is_not_taken_for_it(tmp_path: Path):
    newer = os.urandom(1_000_000)
    server = Careless({BIG: FILES[BIG]})
    server.events[BIG] = [SIZE, CUT] + [Event(body=newer)] * 5
    with server.serve():
        get(server, tmp_path, BIG)
    assert arrived(tmp_path) == {"a.bin": newer}


def test_a_server_without_ranges_that_always_cuts_is_not_asked_for_ever(server: FileServer, tmp_path: Path):
    server.ranged = False
    server.events[BIG] = [SIZE] + [Event(cut_after=2_000_000)] * 30
    with pytest.raises(DataError, match=r"the connection ended after 2,000,000 of 3,000,000 bytes: .*tried 8 times"):
        get(server, tmp_path, BIG)


# Parts


@pytest.mark.parametrize(
    "changed",
    [
        {"Content-Range": None},
        {"Content-Range": "bytes"},
        {"Content-Range": "lines 1000000-2999999/3000000"},
        {"Content-Range": "bytes 0-1999999/3000000"},
        {"Content-Range": "bytes 500000-2499999/3000000"},
        {"Content-Range": "bytes 2999999-1000000/3000000"},
        {"Content-Range": "bytes 1000000-2999999/2000000"},
        {"Content-Range": f"bytes 1000000-{'9' * 5000}/*"},
        {"Content-Range": "bytes 1000000-1999999/3000000"},
        {"Content-Range": None, "Content-Length": None},
    ],
)
def test_a_part_that_says_another_place_or_none_is_not_put_anywhere(server: FileServer, tmp_path: Path, changed: Any):
    server.events[BIG] = [SIZE, CUT, Event(changed=changed)]
    get(server, tmp_path, BIG)
    assert arrived(tmp_path) == {"a.bin": FILES[BIG]}
    assert [seen.headers.get("Range") for seen in server.seen] == ["bytes=0-0", None, "bytes=1000000-", None]


def test_a_part_that_nobody_asked_for_is_told(server: FileServer, tmp_path: Path):
    server.events[SMALL] = [SIZE] + [Event(status=206, content=FILES[SMALL][:100])] * 99
    with pytest.raises(DataError, match=r"sends a part of the file and does not say which \(206 without Content-Range"):
        get(server, tmp_path, SMALL)


def test_a_part_of_a_whole_of_unknown_size_is_asked_on_from(server: FileServer, tmp_path: Path):
    part = Event(status=206, content=FILES[BIG][:500_000], headers={"Content-Range": "bytes 0-499999/*", "ETag": '"1"'})
    server.events[BIG] = [Event(changed={"Content-Range": "bytes 0-0/*"}), part]
    get(server, tmp_path, BIG)
    assert arrived(tmp_path) == {"a.bin": FILES[BIG]}


# Other things than the file


@pytest.mark.parametrize("status", [201, 203, 204, 205, 207, 226, 299])
@pytest.mark.parametrize("first", [[], [SIZE]], ids=["size", "file"])
def test_success_without_the_file_is_told_at_once(server: FileServer, tmp_path: Path, status: int, first: list[Event]):
    content = b"" if status in (204, 205) else b"something else"
    server.events[SMALL] = [*first, Event(status=status, content=content)]
    with pytest.raises(
        DataError, match=rf"b\.jsonl can't be downloaded: the server answers {status}.*, which is not the file: check"
    ):
        get(server, tmp_path, SMALL)


def test_a_file_that_is_not_ready_is_waited_for(server: FileServer, tmp_path: Path):
    server.events[SMALL] = [Event(status=202), SIZE, Event(status=202)]
    waits = Waits()
    get(server, tmp_path, SMALL, waits=waits)
    assert arrived(tmp_path) == {"b.jsonl": FILES[SMALL]}
    assert len(waits.seconds) == 2


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP, identity", "br", "gzip, br", "zzz"])
def test_a_file_that_comes_compressed_is_refused_and_can_be_kept_so(server: FileServer, tmp_path: Path, encoding: str):
    body = gzip.compress(FILES[SMALL])
    packed = Event(body=body, changed={"Content-Encoding": encoding})
    for first in ([], [SIZE]):
        server.events[SMALL] = [*first, packed, packed, packed]
        with pytest.raises(DataError, match=r"sends it compressed .* though .* urls=\{'b\.jsonl\.(gz|br|gz\.br|zzz)'"):
            get(server, tmp_path, SMALL)
        assert "b.jsonl" not in arrived(tmp_path)
    server.events[SMALL] = [packed, packed]
    if "gzip" in encoding.lower() and "br" not in encoding:
        get(server, tmp_path / "kept", {"b.jsonl.gz": SMALL})
        assert arrived(tmp_path / "kept") == {"b.jsonl.gz": body}


@pytest.mark.parametrize("encoding", ["", "identity", "aws-chunked"])
def test_an_encoding_that_changes_nothing_will_do(server: FileServer, tmp_path: Path, encoding: str):
    server.events[SMALL] = [Event(changed={"Content-Encoding": encoding})] * 2
    get(server, tmp_path, SMALL)
    assert arrived(tmp_path) == {"b.jsonl": FILES[SMALL]}


@pytest.mark.parametrize(
    "location", ["http://host:port/x", "http://me:secret@host/x", "http://a..b/x", "http://é.org/x", "ftp://host/x"]
)
def test_a_redirect_to_no_url_of_the_web_is_told_at_once(server: FileServer, tmp_path: Path, location: str):
    server.events[SMALL] = [Event(status=302, headers={"Location": location})]
    waits = Waits()
    with pytest.raises(
        DataError, match=r"b\.jsonl can't be downloaded: the server (sends who asks|answers 302)"
    ) as end:
        get(server, tmp_path, SMALL, waits=waits)
    assert waits.seconds == []
    assert "secret" not in str(end.value)


def test_a_circle_of_redirects_is_one_line(server: FileServer, tmp_path: Path):
    server.events[SMALL] = [Event(status=302, headers={"Location": f"/{SMALL}"})] * 30
    with pytest.raises(DataError, match=r"the server answers 302 .*loop.*check the URL$") as end:
        get(server, tmp_path, SMALL)
    assert "\n" not in str(end.value)


# What is remembered, and digests


@pytest.mark.parametrize("torn", [b"", b"{", b"\xff\xfe", b"[]", b'{"shown": 1}', b"[" * 100_000])
def test_a_side_file_that_is_torn_costs_a_start_from_the_beginning(server: FileServer, tmp_path: Path, torn: bytes):
    server.events[BIG] = [SIZE, CUT, Event(status=403)]
    with pytest.raises(DataError):
        get(server, tmp_path, {"a.bin": BIG, "b.jsonl": SMALL})
    waiting = partial_path(str(tmp_path / "out/.partial"), "a.bin")
    Path(f"{waiting}.begun").write_bytes(torn)
    for fetched in (tmp_path / "out/.partial").glob("*.fetched"):
        fetched.write_bytes(torn)
    Path(f"{waiting}.fetched").write_bytes(torn)
    (tmp_path / "out/a.bin").write_bytes(b"of another time")
    get(server, tmp_path, {"a.bin": BIG, "b.jsonl": SMALL})
    assert arrived(tmp_path) == {"a.bin": FILES[BIG], "b.jsonl": FILES[SMALL]}


def test_another_digest_tells_both_and_what_to_do(server: FileServer, tmp_path: Path):
    wanted = {f"{server.endpoint}/{SMALL}": "AB" * 32}
    with pytest.raises(
        DataError,
        match=rf"its sha256 is [0-9a-f]{{64}}, and must be {'ab' * 32}\. Nothing of it is kept\. "
        r"If its owner has changed it, give the new sha256; else ",
    ):
        get(server, tmp_path, SMALL, wanted)
    assert arrived(tmp_path) == {}


# Waits


@pytest.mark.parametrize("after", ["9" * 400, "99999999999", "1e400", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_wait_of_years_is_told_and_not_waited(server: FileServer, tmp_path: Path, after: str):
    server.events[SMALL] = [Event(status=429, headers={"Retry-After": after})] * 8
    waits = Waits()
    with pytest.raises(DataError, match=r"the server answers 429 .*: (it asks to be left alone for a year|try)"):
        get(server, tmp_path, SMALL, waits=waits)
    assert sum(waits.seconds) < 600


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "-5"},
        {"Retry-After": "nan"},
        {"Retry-After": "inf"},
        {"Retry-After": "0x10"},
        {"Retry-After": "Fri, 31 Dec 0001 23:59:59 +9999"},
        {"Retry-After": "1 Jan 1 0:0:0 -0000"},
        {"ratelimit": f'"api";r=0;t={"9" * 5000}'},
    ],
)
def test_a_wait_that_makes_no_sense_is_the_usual_one_or_none(
    server: FileServer, tmp_path: Path, headers: dict[str, str]
):
    server.events[SMALL] = [Event(status=429, headers=headers)]
    waits = Waits()
    if "ratelimit" in headers:
        with pytest.raises(DataError, match="left alone for a year or more"):
            get(server, tmp_path, SMALL, waits=waits)
        return
    get(server, tmp_path, SMALL, waits=waits)
    assert len(waits.seconds) == 1
    assert waits.seconds[0] <= 2
