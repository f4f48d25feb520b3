"""Answers that are not those of a hub, and what is left of an attempt that ended badly."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin.errors import DataError, HubUnreachableError
from marin.processing.download import HubDownload, HubDownloadConfig
from marin.processing.download_hub import download
from marin.processing.hub import HubClient
from marin.processing.retrying import Retries
from marin.processing.transfer import partial_path
from tests.executors.processes import PATIENCE
from tests.processing.file_server import Event
from tests.processing.hub import Hub
from tests.processing.waits import Waits

LARGE, SMALL = "data/a.parquet", "data/b.jsonl"
FILES = {"README.md": b"# Poems", LARGE: os.urandom(3_000_000), SMALL: b"{}\n" * 100}
COMMIT = "a" * 40
TREE = f"/tree/{COMMIT}"


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(dict(FILES))
    with hub.serve():
        yield hub


@pytest.fixture
def waits() -> Waits:
    return Waits()


PATIENT = {"stall": PATIENCE, "reach": PATIENCE, "listing": PATIENCE}


def get(hub: Hub, folder: Path, waits: Waits, **changes: Any) -> HubDownload:
    config = HubDownloadConfig(output_path=str(folder / "out"), hf_id="org/poems", revision="main")
    client = HubClient(endpoint=hub.endpoint, retries=Retries(wait=waits), **PATIENT, **changes)
    return download(config, client=client)


def arrived(folder: Path) -> dict[str, bytes]:
    out = folder / "out"
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def listed(**changes: Any) -> bytes:
    entry = {"type": "file", "path": "a.txt", "size": 3, "oid": "0" * 40}
    return json.dumps([{key: value for key, value in {**entry, **changes}.items() if value is not ...}]).encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"null",
        b"7",
        b'{"error": "later"}',
        b"[7]",
        b"[[]]",
        b"[{}]",
        listed(type=...),
        listed(type=7),
        listed(path=7),
        listed(path=""),
        listed(path=...),
        listed(size="3"),
        listed(size=-3),
        listed(size=3.5),
        listed(size=None),
        listed(oid=7),
        listed(oid="../" + "0" * 37),
        listed(oid="0" * 40 + "\n"),
        listed(lfs={"oid": "abc"}),
        listed(lfs=[7]),
        listed(lfs={}),
        b"<html>please log in</html>",
        b"",
        b"\xff\xfe",
    ],
)
def test_a_listing_that_is_none_is_told_at_once(hub: Hub, tmp_path: Path, waits: Waits, answer: bytes):
    hub.events[TREE] = [Event(status=200, content=answer)]
    with pytest.raises(DataError, match=r"^dataset 'org/poems' can't be read from the hub: .*: check HF_ENDPOINT"):
        get(hub, tmp_path, waits)
    assert waits.seconds == []


@pytest.mark.parametrize("where", ["/revision/main", TREE])
@pytest.mark.parametrize("answer", [b'[{"type": "file", "pa', b'{"sha": "', b"[" * 100_000])
def test_an_answer_that_ends_early_is_asked_for_again(
    hub: Hub, tmp_path: Path, waits: Waits, where: str, answer: bytes
):
    hub.events[where] = [Event(status=200, content=answer)]
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    hub.events[where] = [Event(status=200, content=answer)] * 99
    with pytest.raises(HubUnreachableError, match=r"the hub's answer arrived torn \(.*\): try again later \(tried 8"):
        get(hub, tmp_path / "again", waits)


@pytest.mark.parametrize("commit", ["", "main", "../../x", "a" * 39, "A" * 40, 7])
def test_a_commit_that_is_none_is_told(hub: Hub, tmp_path: Path, waits: Waits, commit: Any):
    hub.events["/revision/main"] = [Event(status=200, content=json.dumps({"sha": commit}).encode())]
    with pytest.raises(DataError, match="the hub does not say which commit org/poems@main is: check HF_ENDPOINT"):
        get(hub, tmp_path, waits)


def test_a_listing_that_repeats_itself_ends(hub: Hub, tmp_path: Path, waits: Waits):
    again = f'<{hub.endpoint}/api/datasets/org/poems/tree/{COMMIT}?recursive=true>; rel="next"'
    hub.events[TREE] = [Event(changed={"Link": again})] * 20
    with pytest.raises(DataError, match=r"its listing repeats itself \(.*\): check HF_ENDPOINT"):
        get(hub, tmp_path, waits)
    assert len([path for path in hub.requests if "/tree/" in path]) <= 2
    assert arrived(tmp_path).keys() <= {".partial/commit.json"}


def test_the_next_page_is_asked_of_the_hub_wherever_it_points(
    hub: Hub, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.page, hub.token = 2, "hf_secret"
    hub.events[TREE] = [Event(changed={"Link": f'<{hub.cdn.endpoint}/x?recursive=true&cursor=2>; rel="next"'})]
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    assert [seen.headers.get("Authorization") for seen in hub.cdn.seen] == [None]


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "a/" + "é" * 200])
def test_a_name_that_no_disk_takes_is_refused(hub: Hub, tmp_path: Path, waits: Waits, name: str):
    hub.files = {name: b"x"}
    with pytest.raises(DataError, match="which can't lie in an artifact: leave it out with urls_glob"):
        get(hub, tmp_path, waits)


@pytest.mark.parametrize("name", [SMALL, LARGE])
@pytest.mark.parametrize("status", [201, 203, 204])
def test_success_without_the_file_is_told(hub: Hub, tmp_path: Path, waits: Waits, name: str, status: int):
    server = hub.cdn if name == LARGE else hub
    server.events[name] = [Event(status=status, content=b"")]
    with pytest.raises(DataError, match=rf"file '{name}', can't be read .* answers {status} .*, which is not the file"):
        get(hub, tmp_path, waits)


@pytest.mark.parametrize("piece", [10**10, 1_200_000])
@pytest.mark.parametrize(
    "part",
    [None, "bytes 0-1999999/3000000", "bytes 500000-2499999/3000000", "bytes 9-1/3000000", f"bytes 0-{'9' * 5000}/*"],
)
def test_a_part_that_says_another_place_or_none_is_not_put_anywhere(
    hub: Hub, tmp_path: Path, waits: Waits, part: str | None, piece: int
):
    hub.cdn.events[LARGE] = [Event(cut_after=1_000_000), Event(changed={"Content-Range": part})]
    get(hub, tmp_path, waits, piece=piece)
    assert arrived(tmp_path) == FILES
    assert len(waits.seconds) == 2


def test_an_end_without_a_length_is_no_end_before_the_size_of_the_listing(hub: Hub, tmp_path: Path, waits: Waits):
    hub.cdn.events[LARGE] = [Event(cut_after=1_000_000, changed={"Content-Length": None})]
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    assert [seen.headers.get("Range") for seen in hub.cdn.seen] == [None, "bytes=1000000-2999999"]


@pytest.mark.parametrize("torn", [b"", b"{", b"\xff\xfe", b"[]", b"[7]", b'{"revision": "main"}', b"[" * 100_000])
def test_a_side_file_that_is_torn_costs_what_it_remembered(hub: Hub, tmp_path: Path, waits: Waits, torn: bytes):
    hub.cdn.events[LARGE] = [Event(cut_after=1_000_000), Event(status=403)]
    with pytest.raises(DataError):
        get(hub, tmp_path, waits)
    scratch = tmp_path / "out/.partial"
    remembered = [scratch / "commit.json", scratch / f"files-{COMMIT}.json"]
    begun = Path(f"{partial_path(str(scratch / 'files'), LARGE)}.begun")
    assert all(path.is_file() for path in [*remembered, begun])
    for path in [*remembered, begun]:
        path.write_bytes(torn)
    made = get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    assert sorted(file.name for file in made.files) == sorted(FILES)
