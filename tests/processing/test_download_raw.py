"""Downloads from URLs: of web servers that fail, and of stores that ``fsspec`` knows."""

from __future__ import annotations

import email.utils
import hashlib
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from marin.errors import ConfigurationError, DataError, NotEnoughResourcesError
from marin.execution.artifact import at_path
from marin.processing.download_raw import WebClient, download
from marin.processing.object_origin import ObjectOrigin
from marin.processing.raw_download import RawDownload, RawDownloadConfig, RemoteFile, remote_files
from marin.processing.retrying import PassingFault, Retries
from marin.processing.transfer import Tally, Transfer, arrived_bytes
from tests.executors.processes import PATIENCE, eventually
from tests.processing.file_server import Event, FileServer
from tests.processing.waits import Waits

BIG, SMALL = "data/a.bin", "data/b.jsonl"
FILES = {BIG: os.urandom(3_000_000), SMALL: b"{}\n" * 100, "empty.txt": b""}
NOON = 1_800_000_000.0


@pytest.fixture
def server() -> Iterator[FileServer]:
    server = FileServer(dict(FILES))
    with server.serve():
        yield server


@pytest.fixture
def waits() -> Waits:
    return Waits()


def get(server: FileServer, folder: Path, waits: Waits, *names: str, **changes: Any) -> RawDownload:
    urls = [f"{server.endpoint}/{name}" for name in names or FILES]
    sha256 = {f"{server.endpoint}/{name}": digest for name, digest in changes.pop("sha256", {}).items()}
    config = RawDownloadConfig(output_path=str(folder / "out"), files=remote_files("raw/x", urls, sha256))
    stall = changes.pop("stall", PATIENCE)  # a busy machine is not to be taken for a server that is silent
    retries = Retries(wait=waits, now=lambda: NOON, **changes)
    return download(config, client=WebClient(retries=retries, stall=stall))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def arrived(folder: Path) -> dict[str, bytes]:
    out = folder / "out"
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def by_name(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name.rsplit("/", 1)[-1]: data for name, data in files.items()}


def bodies(server: FileServer, name: str) -> list[str | None]:
    """The ranges that were asked for, without the questions for the size."""
    asked = [seen.headers.get("Range") for seen in server.seen if seen.path.endswith(name)]
    return [wanted for wanted in asked if wanted != "bytes=0-0"]


SIZE = Event()
"""What the question for the size gets: nothing out of the way."""


def test_files_arrive_under_the_names_of_their_urls_with_their_digests(
    server: FileServer, tmp_path: Path, waits: Waits
):
    made = get(server, tmp_path, waits)
    assert arrived(tmp_path) == by_name(FILES)
    assert {file.name: file.sha256 for file in made.files} == {
        name: sha256(data) for name, data in by_name(FILES).items()
    }
    assert [file.url for file in made.files] == [f"{server.endpoint}/{name}" for name in FILES]
    at_path(made, str(tmp_path / "out")).verify()
    (tmp_path / "out/a.bin").write_bytes(b"")
    with pytest.raises(DataError, match="is missing or has not 3,000,000 bytes"):
        at_path(made, str(tmp_path / "out")).verify()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("first", [[], [SIZE]], ids=["size", "file"])
def test_what_may_pass_is_tried_again(
    server: FileServer, tmp_path: Path, waits: Waits, status: int, first: list[Event]
):
    server.events[SMALL] = first + [Event(status=status)] * 3
    get(server, tmp_path, waits, SMALL)
    assert arrived(tmp_path) == {"b.jsonl": FILES[SMALL]}
    assert [round(wait) for wait in waits.seconds] == pytest.approx([1, 3, 5], abs=1)


def test_a_server_that_stays_down_ends_in_one_line(server: FileServer, tmp_path: Path, waits: Waits):
    server.events[SMALL] = [SIZE] + [Event(status=503)] * 99
    with pytest.raises(
        DataError, match=rf"{server.endpoint}/data/b\.jsonl can't be downloaded: the server answers 503"
    ) as end:
        get(server, tmp_path, waits, SMALL)
    assert re.search(r": try again later \(tried 8 times, waiting \d+ s\)$", str(end.value))


def date(seconds: float) -> str:
    return email.utils.formatdate(seconds, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({"Retry-After": "17"}, 17),
        ({"Retry-After": date(NOON + 40)}, 40),
        ({"Retry-After": date(5_000.0), "Date": date(4_970.0)}, 30),
        ({"Retry-After": date(5_000.0)}, 0),
        ({"Retry-After": "soon"}, 1),
        ({"ratelimit": '"api";r=0;t=55'}, 55),
        ({"ratelimit": '"api";r=3;t=55'}, 1),
    ],
)
def test_the_wait_that_a_server_asks_for_is_kept(
    server: FileServer, tmp_path: Path, waits: Waits, headers: dict[str, str], asked: float
):
    server.events[SMALL] = [Event(status=429, headers=headers)]
    get(server, tmp_path, waits, SMALL)
    [waited] = waits.seconds
    assert asked <= waited <= asked + 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "it needs a permission that the URL does not give, or no longer: get a URL that does"),
        (403, "it needs a permission"),
        (404, "there is no such file: check the URL"),
        (410, "there is no such file: check the URL"),
        (418, "check the URL"),
        (501, "check the URL"),
    ],
)
def test_a_refusal_ends_it_at_once(server: FileServer, tmp_path: Path, waits: Waits, status: int, message: str):
    for first in ([], [SIZE]):
        server.events[SMALL] = [*first, Event(status=status)]
        with pytest.raises(
            DataError, match=rf"b\.jsonl can't be downloaded: the server answers {status} .*; {message}"
        ):
            get(server, tmp_path, waits, SMALL)
    assert waits.seconds == []


def test_nobody_there_is_told_after_all_tries(tmp_path: Path, waits: Waits):
    nowhere = FileServer(endpoint="http://127.0.0.1:1")
    with pytest.raises(DataError, match=r"can't be reached \(\[Errno 111\] Connection refused\): check the network"):
        get(nowhere, tmp_path, waits, SMALL)


def test_a_file_goes_on_after_each_cut_and_stall(server: FileServer, tmp_path: Path, waits: Waits):
    cut, stalled, silent = Event(cut_after=1_000_000), Event(stall_after=500_000), Event(stall_after=-1)
    server.events[BIG] = [SIZE, cut, stalled, Event(status=503), silent]
    get(server, tmp_path, waits, BIG, stall=3.0)
    assert arrived(tmp_path) == {"a.bin": FILES[BIG]}
    assert bodies(server, BIG) == [None, "bytes=1000000-"] + ["bytes=1500000-"] * 3
    assert len(waits.seconds) == 4


def test_parts_of_two_contents_are_never_put_together(server: FileServer, tmp_path: Path, waits: Waits):
    newer = os.urandom(3_000_000)
    server.events[BIG] = [SIZE, Event(cut_after=1_000_000), Event(body=newer), Event(body=newer)]
    get(server, tmp_path, waits, BIG)
    assert arrived(tmp_path) == {"a.bin": newer}


@pytest.mark.parametrize("size", [3_000_000, 2_000_000, 500_000])
def test_nor_by_a_server_that_ignores_if_range(server: FileServer, tmp_path: Path, waits: Waits, size: int):
    class Careless(FileServer):
        def send_file(self, request: Any, data: bytes, headers: dict[str, str], event: Event) -> None:
            del request.headers["If-Range"]
            super().send_file(request, data, headers, event)

    newer = os.urandom(size)
    careless = Careless({BIG: FILES[BIG]})
    careless.events[BIG] = [SIZE, Event(cut_after=1_000_000)] + [Event(body=newer)] * 5
    with careless.serve():
        get(careless, tmp_path, waits, BIG)
    assert arrived(tmp_path) == {"a.bin": newer}


def test_without_a_validator_a_file_starts_anew_unless_its_digest_is_known(
    server: FileServer, tmp_path: Path, waits: Waits
):
    server.validated = False
    server.events[BIG] = [SIZE, Event(cut_after=1_000_000)]
    get(server, tmp_path, waits, BIG)
    assert bodies(server, BIG) == [None, None]
    server.seen.clear()
    server.events[BIG] = [SIZE, Event(cut_after=1_000_000)]
    get(server, tmp_path / "known", waits, BIG, sha256={BIG: sha256(FILES[BIG])})
    assert bodies(server, BIG) == [None, "bytes=1000000-"]
    assert arrived(tmp_path) == arrived(tmp_path / "known") == {"a.bin": FILES[BIG]}


def test_a_server_without_ranges_will_do(server: FileServer, tmp_path: Path, waits: Waits):
    server.ranged = False
    server.events[BIG] = [SIZE, Event(cut_after=1_000_000)]
    get(server, tmp_path, waits)
    assert arrived(tmp_path) == by_name(FILES)


def test_another_digest_is_fetched_once_more_and_then_refused(server: FileServer, tmp_path: Path, waits: Waits):
    wanted = {SMALL: sha256(FILES[SMALL]).upper()}
    server.events[SMALL] = [SIZE, Event(body=b"x" * 300)]
    get(server, tmp_path / "once", waits, SMALL, sha256=wanted)
    assert arrived(tmp_path / "once") == {"b.jsonl": FILES[SMALL]}
    server.events[SMALL] = [SIZE] + [Event(body=b"x" * 300)] * 2
    found = sha256(b"x" * 300)
    with pytest.raises(
        DataError, match=rf"arrived damaged twice: its sha256 is {found}, and must be {wanted[SMALL].lower()}"
    ):
        get(server, tmp_path, waits, SMALL, sha256=wanted)
    assert arrived(tmp_path) == {}


def test_finished_files_are_kept_over_restarts_unless_they_have_changed_here(tmp_path: Path, waits: Waits):
    class LastRefused(FileServer):
        def answer(self, request: Any, path: str, event: Event) -> None:
            if event.status == 403:
                eventually(lambda: arrived(tmp_path).keys() >= {"a.bin", "b.jsonl"})
            super().answer(request, path, event)

    server = LastRefused(dict(FILES))
    server.events["empty.txt"] = [SIZE, Event(status=403)]
    with server.serve():
        with pytest.raises(DataError):
            get(server, tmp_path, waits)
        (tmp_path / "out/b.jsonl").write_bytes(b"x" * 300)
        server.seen.clear()
        get(server, tmp_path, waits)
    assert arrived(tmp_path) == by_name(FILES)
    assert {seen.path for seen in server.seen} == {"/data/b.jsonl", "/empty.txt"}


def test_a_download_that_the_disk_can_not_hold_does_not_begin(server: FileServer, tmp_path: Path, waits: Waits):
    server.events[BIG] = [Event(status=206, headers={"Content-Range": f"bytes 0-0/{10**17}"}, content=b"x")]
    with pytest.raises(NotEnoughResourcesError, match=r"2 of 2 files needs 100,000,000,000,000,300 bytes, and"):
        get(server, tmp_path, waits, BIG, SMALL)
    assert bodies(server, "") == []


CHILD = """
import sys
from marin.errors import MarinError
from marin.processing.download_raw import download
from marin.processing.raw_download import RawDownloadConfig, remote_files

try:
    made = download(RawDownloadConfig(output_path=sys.argv[1], files=remote_files("x", sys.argv[2], None)))
    print(made.files[0].sha256)
except MarinError as fault:
    print(type(fault).__name__, fault)
"""


def start(url: str, folder: Path, limit: int | None = None) -> subprocess.Popen[str]:
    def bound() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-c", CHILD, str(folder / "out"), url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=bound)


def sizes(folder: Path) -> set[int]:
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {arrived_bytes(entry.path) for entry in entries}


def test_a_process_that_is_killed_loses_nothing_that_has_arrived(server: FileServer, tmp_path: Path):
    server.events[BIG] = [SIZE, Event(stall_after=2_000_000)]
    url = f"{server.endpoint}/{BIG}?signature=1"
    child = start(url, tmp_path)
    while 2_000_000 not in sizes(tmp_path / "out/.partial"):
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.communicate()
    again = start(url.replace("signature=1", "signature=2"), tmp_path)
    assert again.communicate(timeout=PATIENCE)[0].strip() == sha256(FILES[BIG])
    assert arrived(tmp_path) == {"a.bin": FILES[BIG]}
    assert [wanted for wanted in bodies(server, "") if wanted] == ["bytes=2000000-"]


def test_a_full_disk_is_told_and_what_arrived_is_kept(server: FileServer, tmp_path: Path):
    url = f"{server.endpoint}/{BIG}"
    full, _ = start(url, tmp_path, limit=1_000_000).communicate(timeout=PATIENCE)
    assert re.match(r"StorageFullError .*: no room to write \(File too large\)", full)
    assert start(url, tmp_path).communicate(timeout=PATIENCE)[0].strip() == sha256(FILES[BIG])
    assert bodies(server, BIG) == [None, "bytes=1000000-"]


# Object stores


@pytest.fixture
def bucket() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.pipe_file("/bucket/a.bin", FILES[BIG])
    yield system
    system.rm("/bucket", recursive=True)


def test_an_object_of_a_store_arrives(bucket: Any, tmp_path: Path, waits: Waits):
    del bucket
    config = RawDownloadConfig(
        output_path=str(tmp_path / "out"), files=(RemoteFile(name="a.bin", url="memory://bucket/a.bin"),)
    )
    assert download(config).files[0].sha256 == sha256(FILES[BIG])
    assert arrived(tmp_path) == {"a.bin": FILES[BIG]}


def transfer(folder: Path, waits: Waits) -> bytes:
    path = str(folder / "a")
    origin = ObjectOrigin(url="memory://bucket/a.bin", piece=1_000_000)
    Transfer(origin, path, tally=Tally(0)).run(Retries(wait=waits))
    return Path(path).read_bytes()


def test_an_object_goes_on_where_it_was_unless_it_has_changed(bucket: Any, tmp_path: Path, waits: Waits):
    origin = ObjectOrigin(url="memory://bucket/a.bin", piece=1_000_000)
    with origin.open(0, None) as begun:
        assert next(begun.chunks) == FILES[BIG][:1_000_000]
    with origin.open(1_000_000, begun.validator) as rest:
        assert (rest.start, b"".join(rest.chunks)) == (1_000_000, FILES[BIG][1_000_000:])
    newer = os.urandom(2_500_000)
    bucket.pipe_file("/bucket/a.bin", newer)
    with origin.open(1_000_000, begun.validator) as rest:
        assert rest.start == 0
    assert transfer(tmp_path, waits) == newer


def test_an_object_that_changes_while_it_is_read_is_read_again(bucket: Any):
    with ObjectOrigin(url="memory://bucket/a.bin", piece=1_000_000).open(0, None) as answer:
        next(answer.chunks)
        bucket.pipe_file("/bucket/a.bin", os.urandom(3_000_000))
        next(answer.chunks)
        with pytest.raises(PassingFault, match="it has changed while it was read"):
            next(answer.chunks)


def test_what_is_not_there_is_told_at_once(bucket: Any, tmp_path: Path, waits: Waits):
    bucket.pipe_file("/bucket/folder/b.bin", b"")
    for name, message in {"absent.bin": "there is no such object: check the URL", "folder": "it is a folder"}.items():
        files = (RemoteFile(name="x", url=f"memory://bucket/{name}"),)
        with pytest.raises(DataError, match=rf"memory://bucket/{name} can't be downloaded: {message}"):
            download(RawDownloadConfig(output_path=str(tmp_path), files=files))


@pytest.mark.parametrize(("scheme", "library", "extra"), [("s3", "s3fs", "s3"), ("gs", "gcsfs", "gcs")])
def test_a_library_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, library: str, extra: str
):
    monkeypatch.setitem(sys.modules, library, None)
    files = (RemoteFile(name="x", url=f"{scheme}://bucket/x"),)
    with pytest.raises(
        ConfigurationError, match=rf"^{scheme}://bucket/x: .*{library}.*: pip install .marin\[{extra}\]"
    ):
        download(RawDownloadConfig(output_path=str(tmp_path), files=files))


# The description


@pytest.mark.parametrize(
    ("urls", "digests", "message"),
    [
        ((), None, "urls= is empty"),
        ("poems.jsonl", None, r"'poems\.jsonl' is not a URL of http://, https://, s3://, gs://; files of this machine"),
        ("ftp://host/poems.jsonl", None, "is not a URL of"),
        ("https://host/", None, r"https://host/: has no file name at its end; give one: urls=\{'name\.jsonl': "),
        ("https://host/.artifact.json", None, r"'\.artifact\.json' is no name for a file"),
        ({"../a": "https://host/a"}, None, r"'\.\./a' is no name for a file"),
        (
            ["https://host/a/x.gz", "s3://b/x.gz"],
            None,
            r"https://host/a/x\.gz and s3://b/x\.gz would both be called 'x\.gz'",
        ),
        ({"a": "https://host/a", "a/b": "https://host/b"}, None, "'a' is a file, and 'a/b' would lie in it"),
        ("https://me:secret@host/a", None, "the URL of https://host/a has a password in it"),
        ("https://host/a", "abc", "the sha256 of https://host/a is 'abc', not 64 hexadecimal digits"),
        (["https://host/a", "https://host/b"], "0" * 64, r"sha256= is one text, and there are 2 urls: write \{url: "),
        ("https://host/abc", {"https://host/abd": "0" * 64}, "not among the urls; it is near 'https://host/abc'"),
    ],
)
def test_what_can_not_be_fetched_is_told_at_construction(urls: Any, digests: Any, message: str):
    with pytest.raises(ConfigurationError, match=rf"^raw/x: .*{message}") as refused:
        remote_files("raw/x", urls, digests)
    assert "secret" not in str(refused.value)


def test_names_can_be_given():
    made = remote_files("raw/x", {"one/a.gz": "https://one/a.gz", "two/a.gz": "https://two/a.gz"}, None)
    assert [(file.name, file.url) for file in made] == [
        ("one/a.gz", "https://one/a.gz"),
        ("two/a.gz", "https://two/a.gz"),
    ]
