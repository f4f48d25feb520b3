"""Files at URLs are found, read and told apart like those of this machine, and a fault of the network is not a short
file."""

from __future__ import annotations

import ftplib
import gzip
import importlib.util
import io
import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import fsspec
import fsspec.asyn
import fsspec.config
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import marin.processing.remote_files
from marin.errors import BadRecordError, ConfigurationError, DataError
from marin.processing.bad_records import BadRecords
from marin.processing.documents import read_documents
from marin.processing.input_files import current_stamp, file_sha256, input_files, open_file
from marin.processing.inputs import open_inputs
from marin.processing.pieces import pieces_of
from marin.processing.remote_faults import explained, may_pass
from marin.processing.sources import files
from tests.processing.reading import LINES, POEMS, jsonl, skipping, texts
from tests.processing.web import Web


def parquet(poems: list[str]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": poems}), sink, row_group_size=2)
    return sink.getvalue()


def arrow(poems: list[str]) -> bytes:
    sink, table = io.BytesIO(), pa.table({"text": poems})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


NAMED = {
    "b/2.jsonl": jsonl({"text": "b/2"}),
    "b/10.jsonl.gz": gzip.compress(jsonl({"text": "b/10"})),
    "a/z.csv": b"text\na/z\n",
    "B.parquet": parquet(["B"]),
    "c.arrow": arrow(["c"]),
    ".hidden.jsonl": jsonl({"text": "hidden"}),
    "b/.git/x.jsonl": jsonl({"text": "hidden"}),
    "b/notes": b"notes",
}
SORTED = ["B", "a/z", "b/10", "b/2", "c"]


@pytest.fixture
def bucket() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    for name, data in NAMED.items():
        system.pipe(f"/bucket/{name}", data)
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


def test_a_folder_at_a_url_gives_sorted_files_without_hidden_ones(bucket: str):
    assert texts(bucket) == texts(f"{bucket}/") == SORTED


def test_globs_at_a_url_give_sorted_files_each_once(bucket: str):
    assert texts(f"{bucket}/b/*.jsonl*") == ["b/10", "b/2"]
    assert texts(f"{bucket}/**/*.csv") == ["a/z"]
    both = files(f"{bucket}/b/*.jsonl", bucket)
    assert next(file.name for file in input_files(both)) == "memory:///bucket/b/2.jsonl"
    assert len(input_files(both)) == 5


def test_what_is_excluded_at_a_url_is_left_out(bucket: str):
    source = files(bucket, exclude=[f"{bucket}/b", f"{bucket}/*.arrow"])
    assert [file.name for file in input_files(source)] == ["memory:///bucket/B.parquet", "memory:///bucket/a/z.csv"]
    with pytest.raises(DataError, match="no files are left of memory://bucket"):
        input_files(files(bucket, exclude=bucket))


@pytest.mark.parametrize("pattern", ["none.jsonl", "none/*.jsonl", "none/"])
def test_a_url_that_matches_nothing_is_an_error(bucket: str, pattern: str):
    with pytest.raises(DataError, match=r"'memory://bucket/none.*' matches no file: check the address"):
        texts(f"{bucket}/{pattern}")


def test_a_folder_at_a_url_without_a_known_file_is_an_error(bucket: str):
    fsspec.filesystem("memory").pipe("/bucket/other/notes", b"")
    with pytest.raises(DataError, match=r"the folder memory://bucket/other has no file with a known suffix"):
        texts(f"{bucket}/other")


def test_the_stamp_of_a_remote_file_changes_with_it(bucket: str):
    [file] = input_files(files(f"{bucket}/b/2.jsonl"))
    assert file.stamp == current_stamp(file) is not None
    fsspec.filesystem("memory").pipe("/bucket/b/2.jsonl", LINES)
    assert file.stamp != current_stamp(file)
    fsspec.filesystem("memory").rm("/bucket/b/2.jsonl")
    with pytest.raises(DataError, match=r"memory:///bucket/b/2\.jsonl is not there"):
        current_stamp(file)


def test_the_description_of_a_url_is_the_url_without_its_secrets(bucket: str, tmp_path):
    with open_inputs(files(f"{bucket}/b/2.jsonl"), scratch=str(tmp_path)) as inputs:
        assert inputs.description == f"{bucket}/b/2.jsonl"
    web = Web({"a.jsonl": LINES})
    with web.serve() as url:
        [file] = input_files(files(f"{url.replace('//', '//me:pw12345@')}/a.jsonl?sig=abc"))
        assert file.name == f"{url.replace('//', '//***@')}/a.jsonl?sig=***"


def test_files_of_a_web_server_are_read_by_name_folder_and_glob():
    web = Web({f"data/{name}": data for name, data in NAMED.items()})
    with web.serve() as url:
        assert texts(f"{url}/data/b/2.jsonl?download=true") == ["b/2"]
        assert texts(f"{url}/data/") == SORTED
        assert texts(f"{url}/data/b/*.jsonl*") == ["b/10", "b/2"]
        [file] = input_files(files(f"{url}/data/B.parquet"))
        assert (file.size, file.stamp) == (len(NAMED["B.parquet"]), current_stamp(file))
        with open_file(file) as stream:
            assert stream.read() == NAMED["B.parquet"]
        with pytest.raises(DataError, match=r"/data/none\.jsonl' matches no file"):
            texts(f"{url}/data/none.jsonl")


def test_pieces_of_a_remote_file_ask_for_their_part_alone():
    poems = [f"{number} " * 200 for number in range(200)]
    web = Web({"a.jsonl": jsonl(*({"text": poem} for poem in poems)), "a.parquet": parquet(poems)})
    with web.serve() as url:
        for name in ("a.jsonl", "a.parquet"):
            [file] = input_files(files(f"{url}/{name}"))
            pieces = pieces_of(file, file.size // 4)  # row groups are of different sizes
            assert len(pieces) >= 3
            found = [each.text for piece in pieces for each in read_documents(piece, "text", BadRecords())]
            assert found == poems


LONG = [f"{number} " * 200_000 for number in range(16)]


def test_a_server_without_ranges_gives_whole_files():
    web = Web({"a.jsonl": jsonl(*({"text": poem} for poem in LONG)), "b.jsonl.gz": gzip.compress(LINES)}, ranges=False)
    with web.serve() as url:
        assert texts(f"{url}/a.jsonl") == LONG
        assert texts(f"{url}/b.jsonl.gz") == POEMS
        [file] = input_files(files(f"{url}/a.jsonl"))
        assert len(pieces_of(file, 1)) == 1


@pytest.mark.parametrize("fault", ["500", "cut"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "a.arrow"])
def test_a_fault_of_the_network_is_tried_again(fault: str, name: str):
    data = {"a.jsonl": LINES, "a.jsonl.gz": gzip.compress(LINES), "a.parquet": parquet(POEMS), "a.arrow": arrow(POEMS)}
    web = Web(data)
    with web.serve() as url:
        web.faults = ["", fault]
        assert texts(f"{url}/{name}") == POEMS
        assert not web.faults


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_in_the_middle_of_a_large_file_loses_nothing(ranges: bool):
    data = jsonl(*({"text": poem} for poem in LONG))
    web = Web({"a.jsonl": data}, ranges=ranges)
    with web.serve() as url:
        [file] = input_files(files(f"{url}/a.jsonl"))
        web.faults = ["", "cut", "", "500"]
        with open_file(file) as stream:
            assert b"".join(iter(lambda: stream.read(1 << 20), b"")) == data
        assert len(web.faults) < 2


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.parquet"])
def test_a_fault_that_stays_is_an_error_and_no_bad_record(name: str):
    web = Web({name: parquet(POEMS)})
    with web.serve() as url:
        source = f"{url}/{name}"
        input_files(files(source))
        web.faults = ["500"] * 30
        with pytest.raises(
            DataError, match=rf"{name} can't be read, tried 4 times: its server answers 500 Internal.* later, or leave"
        ) as caught:
            skipping(source)
        assert not isinstance(caught.value, BadRecordError)


FORBIDDEN = (
    r"may not be read \(its server answers {}\): check the address, set FSSPEC_HTTP to .*Authorization.*or leave"
)
LATER = r"can't be read, tried 4 times: its server answers {}; {}: try again later"
TOLD = {
    401: FORBIDDEN.format("401 Unauthorized"),
    403: FORBIDDEN.format("403 Forbidden"),
    404: r"'http.*' matches no file: check the address",
    410: r"'http.*' matches no file: check the address",
    418: r"can't be read: its server answers 418 I'm a Teapot; check the address, or leave it out with exclude=",
    429: LATER.format("429 Too Many Requests", "it was asked too often"),
    500: LATER.format("500 Internal Server Error", "the fault is the server's"),
    503: LATER.format("503 Service Unavailable", "the fault is the server's"),
}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marin.processing.remote_files, "_pause", lambda state: 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("status", TOLD)
@pytest.mark.parametrize("name", ["a.jsonl", "", "*.jsonl", "**/a.jsonl"])
def test_what_a_server_answers_is_told_as_what_it_means(name: str, status: int):
    web = Web({"closed/a.jsonl": LINES}, statuses={"closed": status})
    with web.serve() as url, pytest.raises(DataError, match=TOLD[status]) as caught:
        texts(f"{url}/closed/{name}")
    assert f"{url}/closed/{name}" in str(caught.value)
    assert len(web.requests) >= (4 if status in (429, 500, 503) else 1)
    assert len(web.requests) < (40 if status in (429, 500, 503) else 8)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("status", [403, 503])
def test_what_a_server_answers_once_a_file_is_found_is_told_too(status: int):
    web = Web({"a.jsonl": LINES})
    with web.serve() as url:
        [file] = input_files(files(f"{url}/a.jsonl"))
        web.statuses["a"] = status
        for act in (lambda: current_stamp(file), lambda: open_file(file), lambda: file_sha256(file.path)):
            with pytest.raises(DataError, match=TOLD[status]):
                act()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["data/", "data/**/*.jsonl", "data/*/c.jsonl"])
def test_a_folder_below_whose_server_does_not_answer_is_not_passed_over(monkeypatch: pytest.MonkeyPatch, name: str):
    web = Web({"data/a.jsonl": LINES, "data/b/c.jsonl": LINES})
    system = fsspec.filesystem("http")
    listed = system._ls

    async def ls(url: str, *args: object, **options: object) -> object:
        if url.rstrip("/").endswith("/b"):
            raise ConnectionResetError("cut")
        return await listed(url, *args, **options)

    monkeypatch.setattr(system, "_ls", ls)
    monkeypatch.setattr(system, "ls", partial(fsspec.asyn.sync, system.loop, ls))
    with web.serve() as url, pytest.raises(DataError, match=r"can't be read, tried 4 times: cut; check the address"):
        texts(f"{url}/{name}")


def test_a_link_of_a_folder_that_leads_nowhere_is_passed_over():
    web = Web({"data/a.jsonl": LINES, "data/b/c.jsonl": LINES}, statuses={"data/b/": 404})
    with web.serve() as url:
        assert texts(f"{url}/data/") == POEMS


@pytest.mark.parametrize(
    ("glob", "found"), [("a*", ["a"]), ("*/*", ["c"]), ("**/*", ["a", "c", "e"]), ("[bd]/**", "ce")]
)
def test_a_glob_at_a_web_server_goes_as_deep_as_it_says(glob: str, found: list[str]):
    names = {"data/a.jsonl": "a", "data/b/c.jsonl": "c", "data/d/d/e.jsonl": "e"}
    web = Web({name: jsonl({"text": text}) for name, text in names.items()})
    with web.serve() as url:
        assert texts(f"{url}/data/{glob}") == list(found)


def test_a_server_that_answers_any_address_with_the_same_page_is_left(monkeypatch: pytest.MonkeyPatch):
    web = Web({"data/a.jsonl": LINES})
    system = fsspec.filesystem("http")
    monkeypatch.setattr(system, "ls", lambda url, detail: [{"name": f"{url}b/", "size": None, "type": "directory"}])
    with web.serve() as url, pytest.raises(DataError, match=r"is the 33th folder within another: its server seems"):
        texts(f"{url}/data/")


def test_a_server_is_asked_again_before_a_file_is_said_to_be_missing():
    web = Web({"a.jsonl": LINES}, statuses={"a": 503})
    answers = iter([503, 503, 200])

    class Once(dict[str, int]):
        def items(self) -> Any:
            return [("a", status)] if (status := next(answers, 200)) != 200 else []

    web.statuses = Once()
    with web.serve() as url:
        assert texts(f"{url}/a.jsonl") == POEMS


def test_the_credentials_that_the_message_asks_for_open_the_file(monkeypatch: pytest.MonkeyPatch):
    web = Web({"closed/a.jsonl": LINES}, statuses={"closed": 401})
    given = {"FSSPEC_HTTP": json.dumps({"headers": {"Authorization": web.login}})}
    conf: dict[str, Any] = {}
    fsspec.config.set_conf_env(conf, given)
    monkeypatch.setitem(fsspec.config.conf, "http", conf["http"])
    with web.serve() as url:
        assert texts(f"{url}/closed/a.jsonl") == POEMS


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a.jsonl", "http://127.0.0.1:9/", "ftp://127.0.0.1:9/a.jsonl"])
def test_a_server_that_refuses_to_be_connected_is_told(url: str):
    with pytest.raises(DataError, match=rf"{url} can't be read, tried 4 times: .*onnect.*; check the address"):
        texts(url)


def test_a_login_that_is_refused_says_how_to_give_another():
    told = explained("ftp://host/a.jsonl", ftplib.error_perm("530 Login incorrect."))
    assert re.search(r"may not be read \(530 Login incorrect\): check the address, give the login in", str(told))
    assert "for the aws command" in str(explained("s3://bucket/a", PermissionError("Forbidden")))
    assert "gcloud auth" in str(explained("gs://bucket/a", PermissionError("Forbidden")))
    assert not may_pass(ftplib.error_perm("530 Login incorrect."))


def test_the_digest_of_a_remote_file_is_that_of_its_content(bucket: str, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(NAMED["b/2.jsonl"])
    assert file_sha256(f"{bucket}/b/2.jsonl") == file_sha256(str(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(("scheme", "extra", "driver"), [("s3", "s3", "s3fs"), ("gs", "gcs", "gcsfs")])
def test_a_driver_that_is_not_installed_is_named_with_the_way_to_get_it(scheme: str, extra: str, driver: str):
    if importlib.util.find_spec(driver):
        pytest.skip(f"{driver} is installed")
    with pytest.raises(
        ConfigurationError, match=rf"driver for {scheme}:// is not installed: pip install 'marin\[{extra}\]'"
    ):
        texts(f"{scheme}://bucket/a.jsonl")


def test_a_scheme_that_nothing_reads_is_refused():
    with pytest.raises(ConfigurationError, match="nothing is known that reads foo://"):
        texts("foo://bucket/a.jsonl")
