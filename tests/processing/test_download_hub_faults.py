"""Downloads from a hub that fails in every way it knows, and what each costs."""

from __future__ import annotations

import email.utils
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marin.errors import DataError, HubUnreachableError, NotEnoughResourcesError, StorageFullError, StoreBusyError
from marin.execution.progress import Progress, progress_sink
from marin.processing.download import HubDownload, HubDownloadConfig
from marin.processing.download_hub import download
from marin.processing.hub import HubClient, HubFile, Repository, current_commit, fetch, list_files
from marin.processing.retrying import Retries
from marin.processing.transfer import alone_in, arrived_bytes
from tests.executors.processes import PATIENCE
from tests.processing.file_server import Event
from tests.processing.hub import Hub
from tests.processing.waits import Waits

LARGE, SMALL = "data/a.parquet", "data/b.jsonl"
FILES = {"README.md": b"# Poems", LARGE: os.urandom(3_000_000), SMALL: b"{}\n" * 100}
NOON = 1_800_000_000.0


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(dict(FILES))
    with hub.serve():
        yield hub


@pytest.fixture
def waits() -> Waits:
    return Waits()


# A busy machine is not to be taken for a server that is silent.
PATIENT = {"stall": PATIENCE, "reach": PATIENCE, "listing": PATIENCE}


def client(hub: Hub, waits: Waits, **changes: Any) -> HubClient:
    retries = Retries(wait=waits, now=lambda: NOON, **changes.pop("retries", {}))
    return HubClient(endpoint=hub.endpoint, retries=retries, **{**PATIENT, **changes})


def get(
    hub: Hub, folder: Path, waits: Waits, *, revision: str = "main", globs: Any = (), **changes: Any
) -> HubDownload:
    config = HubDownloadConfig(
        output_path=str(folder / "out"), hf_id="org/poems", revision=revision, urls_glob=tuple(globs)
    )
    return download(config, client=client(hub, waits, **changes))


def arrived(folder: Path) -> dict[str, bytes]:
    out = folder / "out"
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def ranges(hub: Hub) -> list[str | None]:
    """What was asked of the second server, which has the large files."""
    return [seen.headers.get("Range") for seen in hub.cdn.seen]


SERVERS = ["/revision/main", "/tree/" + "a" * 40, SMALL, LARGE]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("where", SERVERS)
def test_what_may_pass_is_tried_again(hub: Hub, tmp_path: Path, waits: Waits, where: str, status: int):
    hub.events[where] = [Event(status=status)] * 3
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    assert [round(wait) for wait in waits.seconds] == pytest.approx([1, 3, 5], abs=1)


def test_the_server_behind_the_hub_is_tried_again_too(hub: Hub, tmp_path: Path, waits: Waits):
    hub.cdn.events[LARGE] = [Event(status=503), Event(status=500)]
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    assert len(waits.seconds) == 2


@pytest.mark.parametrize("where", SERVERS)
def test_a_hub_that_stays_down_ends_in_one_line_with_all_that_was_tried(
    hub: Hub, tmp_path: Path, waits: Waits, where: str
):
    hub.events[where] = [Event(status=503)] * 99
    with pytest.raises(
        HubUnreachableError, match=r"the hub answers 503 \(Service Unavailable\): try again later"
    ) as end:
        get(hub, tmp_path, waits)
    assert re.search(r"\(tried 8 times, waiting \d+ s\)$", str(end.value))
    assert "dataset 'org/poems'" in str(end.value)
    assert len(waits.seconds) == 7


def date(seconds: float) -> str:
    return email.utils.formatdate(seconds, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({"Retry-After": "17"}, 17),
        ({"Retry-After": date(NOON + 40)}, 40),
        ({"Retry-After": date(5_000.0), "Date": date(4_970.0)}, 30),
        ({"ratelimit": '"resolvers";r=0;t=55', "ratelimit-policy": '"fixed window";"resolvers";q=500;w=300'}, 55),
    ],
)
@pytest.mark.parametrize("where", ["/revision/main", SMALL])
def test_the_wait_that_the_hub_asks_for_is_kept(
    hub: Hub, tmp_path: Path, waits: Waits, where: str, headers: dict[str, str], asked: float
):
    hub.events[where] = [Event(status=429, headers=headers)]
    get(hub, tmp_path, waits)
    [waited] = waits.seconds
    assert asked <= waited <= asked + 1
    assert arrived(tmp_path) == FILES


def test_a_wait_longer_than_the_step_would_wait_ends_it_at_once(hub: Hub, tmp_path: Path, waits: Waits):
    hub.events[SMALL] = [Event(status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(HubUnreachableError, match=r"left alone for 3,600 s, more than is waited here: run again after"):
        get(hub, tmp_path, waits)
    assert waits.seconds == []
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES


def test_what_is_waited_for_is_told(hub: Hub, tmp_path: Path, waits: Waits, caplog: pytest.LogCaptureFixture):
    hub.events[SMALL] = [Event(status=503)]
    told = list[Progress]()
    with progress_sink(told.append):
        get(hub, tmp_path, waits)
    text = r"the hub answers 503 \(Service Unavailable\); trying again in \d s \(try 2 of 8\)"
    assert [report.note for report in told if re.fullmatch(rf"b\.jsonl: {text}", report.note)]
    assert re.search(rf"hf://datasets/org/poems@a+/data/b\.jsonl: {text}", caplog.text)
    assert (told[-1].done, told[-1].total, told[-1].unit) == (told[0].total, told[0].total, "MB")


REFUSALS = [
    (Event(status=401), r"does not know who asks .*: 'hf auth login', or set HF_TOKEN"),
    (Event(status=403), r"refuses .*: your token may not read it.* 'hf auth login', or set HF_TOKEN"),
    (
        Event(status=403, headers={"X-Error-Code": "GatedRepo"}),
        r"it is gated: ask for access on its page, then 'hf auth",
    ),
    (Event(status=404, headers={"X-Error-Code": "RepoNotFound"}), r"'org/poems'.* there is no such repository"),
    (
        Event(status=404, headers={"X-Error-Code": "RevisionNotFound"}),
        r"it has no revision '(main|a+)': check revision=",
    ),
    (Event(status=400), r"the hub refuses .*: check HF_ENDPOINT and the id"),
]


@pytest.mark.parametrize(("event", "message"), REFUSALS)
@pytest.mark.parametrize("where", SERVERS)
def test_a_refusal_ends_it_at_once_and_says_what_to_do(
    hub: Hub, tmp_path: Path, waits: Waits, where: str, event: Event, message: str
):
    hub.events[where] = [event]
    with pytest.raises(DataError, match=message) as end:
        get(hub, tmp_path, waits)
    assert not isinstance(end.value, HubUnreachableError)
    assert waits.seconds == []
    assert where.startswith("/") or f"file '{where}', can't be read" in str(end.value)


def test_a_file_that_is_gone_is_named(hub: Hub, tmp_path: Path, waits: Waits):
    hub.events[SMALL] = [Event(status=404, headers={"X-Error-Code": "EntryNotFound"})]
    with pytest.raises(DataError, match=r"'org/poems', file 'data/b\.jsonl', can't be read .* it lacks data/b\.jsonl"):
        get(hub, tmp_path, waits)


def test_a_revision_that_is_not_there_is_named(hub: Hub, tmp_path: Path, waits: Waits):
    with pytest.raises(DataError, match=r"dataset 'org/poems' can't be read .* it has no revision 'v9': check"):
        get(hub, tmp_path, waits, revision="v9")


def test_a_large_file_goes_on_after_each_cut_and_stall(hub: Hub, tmp_path: Path, waits: Waits):
    hub.cdn.events[LARGE] = [
        Event(cut_after=1_000_000),
        Event(stall_after=500_000),
        Event(status=503),
        Event(cut_after=0),
    ]
    get(hub, tmp_path, waits, stall=3.0)
    assert arrived(tmp_path) == FILES
    assert ranges(hub) == [None, "bytes=1000000-2999999", "bytes=1500000-2999999"] + ["bytes=1500000-2999999"] * 2


@pytest.mark.parametrize("where", SERVERS)
def test_a_hub_that_does_not_answer_at_all_is_asked_again(hub: Hub, tmp_path: Path, waits: Waits, where: str):
    hub.events[where] = [Event(stall_after=-1)]
    get(hub, tmp_path, waits, **dict.fromkeys(PATIENT, 3.0))
    assert arrived(tmp_path) == FILES
    assert len(waits.seconds) == 1


def test_a_server_that_ignores_ranges_starts_the_file_anew(hub: Hub, tmp_path: Path, waits: Waits):
    hub.cdn.events[LARGE] = [Event(cut_after=1_000_000), Event(whole=True)]
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES


def test_tries_are_counted_anew_after_each_mebibyte(hub: Hub, tmp_path: Path, waits: Waits):
    hub.cdn.events[LARGE] = [Event(status=503), Event(status=503), Event(cut_after=1_100_000)] * 2
    get(hub, tmp_path, waits, retries={"tries": 4})
    assert arrived(tmp_path) == FILES
    hub.cdn.events[LARGE] = [Event(cut_after=10)] * 99
    with pytest.raises(HubUnreachableError, match=r"the connection was cut .*: check the network \(tried 4 times"):
        get(hub, tmp_path / "again", waits, retries={"tries": 4})


def test_what_one_answer_can_not_hold_is_asked_for_in_pieces(hub: Hub, tmp_path: Path, waits: Waits):
    get(hub, tmp_path, waits, piece=1_200_000)
    assert arrived(tmp_path) == FILES
    assert ranges(hub) == ["bytes=0-1199999", "bytes=1200000-2399999", "bytes=2400000-2999999"]


@pytest.mark.parametrize("name", [LARGE, SMALL])
def test_a_damaged_file_is_fetched_once_more_and_then_refused(hub: Hub, tmp_path: Path, waits: Waits, name: str):
    server = hub.cdn if name == LARGE else hub
    damaged = Event(body=bytes(len(FILES[name])))
    server.events[name] = [damaged]
    get(hub, tmp_path / "once", waits)
    assert arrived(tmp_path / "once") == FILES
    server.events[name] = [damaged] * 2
    with pytest.raises(DataError, match=rf"{name} arrived damaged twice: its digest is not the hub's"):
        get(hub, tmp_path, waits)
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES


def test_a_file_of_another_size_is_refused(hub: Hub, tmp_path: Path, waits: Waits):
    hub.events[SMALL] = [Event(body=b"a page of a proxy")] * 2
    with pytest.raises(DataError, match=r"b\.jsonl arrived damaged twice: it has 17 bytes, on the hub 300"):
        get(hub, tmp_path, waits)


def test_a_branch_that_moves_meanwhile_changes_nothing(hub: Hub, tmp_path: Path, waits: Waits):
    hub.events[SMALL] = [Event(status=403)]
    with pytest.raises(DataError):
        get(hub, tmp_path, waits)
    hub.commit = "b" * 40
    assert get(hub, tmp_path, waits).commit == "a" * 40
    assert len([path for path in hub.requests if "/revision/" in path or "/tree/" in path]) == 2


@pytest.mark.parametrize("answer", [b"<html>please log in</html>", b'[{"type": "file"}]', b"{}", b"[]"])
@pytest.mark.parametrize("where", ["/revision/main", "/tree/" + "a" * 40])
def test_what_answers_but_is_not_the_hub_is_told(hub: Hub, tmp_path: Path, waits: Waits, where: str, answer: bytes):
    hub.events[where] = [Event(status=200, content=answer)]
    with pytest.raises(DataError, match=r"check (HF_ENDPOINT|hf_id= and revision=)"):
        get(hub, tmp_path, waits)


def test_another_revision_is_looked_up_anew(hub: Hub, tmp_path: Path, waits: Waits):
    hub.events[SMALL] = [Event(status=403)]
    with pytest.raises(DataError):
        get(hub, tmp_path, waits)
    hub.commit = "b" * 40
    assert get(hub, tmp_path, waits, revision="b" * 40).commit == "b" * 40


def test_finished_files_are_kept_and_damaged_ones_replaced(hub: Hub, tmp_path: Path, waits: Waits):
    hub.events["README.md"] = [Event(status=403)]
    with pytest.raises(DataError):
        get(hub, tmp_path, waits, globs=["README.md"])
    (tmp_path / "out/data").mkdir(parents=True, exist_ok=True)
    (tmp_path / "out" / LARGE).write_bytes(FILES[LARGE])
    (tmp_path / "out" / SMALL).write_bytes(b"x" * 300)
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    assert ranges(hub) == []


def test_the_pages_of_a_listing_are_put_together(hub: Hub, tmp_path: Path, waits: Waits):
    hub.page = 1
    hub.events["/tree/" + "a" * 40] = [Event(), Event(status=503)]
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES


def test_the_login_is_for_the_hub_alone(hub: Hub, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.token = "hf_secret"
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES
    assert [seen.headers.get("Authorization") for seen in hub.cdn.seen] == [None]
    hub.token = "another"
    with pytest.raises(DataError, match=r"does not know who asks .Invalid credentials.* is the token still valid"):
        get(hub, tmp_path / "again", waits)


def test_a_download_that_the_disk_can_not_hold_does_not_begin(hub: Hub, tmp_path: Path, waits: Waits):
    hub.claimed = {SMALL: 10**18}
    with pytest.raises(NotEnoughResourcesError, match=r"3 of 3 files .* needs 1,000,000,000,003,000,007 bytes, and"):
        get(hub, tmp_path, waits)
    assert not [path for path in hub.requests if "/resolve/" in path]
    get(hub, tmp_path, waits, globs=["*.md"])  # what is not asked for needs no room


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil", ".artifact.json", ".logs/a", ".partial/commit.json"])
def test_a_name_that_has_no_place_in_the_artifact_is_refused(hub: Hub, tmp_path: Path, waits: Waits, name: str):
    hub.files = {name: b"x"}
    with pytest.raises(DataError, match=rf"has a file called '{re.escape(name)}', which can't lie in an artifact"):
        get(hub, tmp_path, waits)


def test_two_downloads_into_one_folder_do_not_mix(
    hub: Hub, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("marin.processing.transfer._LOCK_SECONDS", 0.0)
    with alone_in(str(tmp_path / "out/.partial")):
        with pytest.raises(StoreBusyError, match="another process has kept this folder locked"):
            get(hub, tmp_path, waits)
    get(hub, tmp_path, waits)
    assert arrived(tmp_path) == FILES


def test_files_travel_together_and_the_first_that_fails_ends_the_others(hub: Hub, tmp_path: Path, waits: Waits):
    hub.files = {f"{number}.txt": b"x" * number for number in range(20)}
    hub.events["/7.txt"] = [Event(status=403)]
    with pytest.raises(DataError, match=r"file '7\.txt', can't be read"):
        get(hub, tmp_path, waits)
    assert [file.name for file in get(hub, tmp_path, waits).files] == sorted(hub.files)
    assert arrived(tmp_path) == hub.files


def test_one_file_can_be_fetched_alone(hub: Hub, tmp_path: Path, waits: Waits):
    """As the inputs of ``tokenized`` are."""
    asking = client(hub, waits)
    repository = Repository(
        name="org/poems", kind="dataset", commit=current_commit("org/poems", "dataset", None, client=asking)
    )
    [file] = [file for file in list_files(repository, client=asking) if file.name == LARGE]
    hub.cdn.events[LARGE] = [Event(cut_after=1_000_000), Event(status=403)]
    with pytest.raises(DataError):
        fetch(repository, file, str(tmp_path), client=asking)
    assert Path(fetch(repository, file, str(tmp_path), client=asking)).read_bytes() == FILES[LARGE]
    assert ranges(hub)[-1] == "bytes=1000000-2999999"
    nowhere = HubFile(name="absent.txt", size=1, sha256=None, blob_id="")
    with pytest.raises(DataError, match=r"it lacks absent\.txt"):
        fetch(repository, nowhere, str(tmp_path), client=asking)


# Across processes

CHILD = """
import sys
from marin.errors import MarinError
from marin.processing.download import HubDownloadConfig
from marin.processing.download_hub import download

try:
    made = download(HubDownloadConfig(output_path=sys.argv[1], hf_id="org/poems", revision="main"))
    print(made.commit)
except MarinError as fault:
    print(type(fault).__name__, fault)
"""


def start(hub: Hub, folder: Path, limit: int | None = None, **environ: str) -> subprocess.Popen[str]:
    def bound() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    place = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), **environ}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder / "out")],
        env={**os.environ, **place},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=bound,
    )


def said(child: subprocess.Popen[str]) -> str:
    out, err = child.communicate(timeout=PATIENCE)
    return out + err


def sizes(folder: Path) -> set[int]:
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {arrived_bytes(entry.path) for entry in entries}


def test_a_process_that_is_killed_loses_nothing_that_has_arrived(hub: Hub, tmp_path: Path):
    hub.cdn.events[LARGE] = [Event(stall_after=2_000_000)]
    child = start(hub, tmp_path)
    waiting = tmp_path / "out/.partial/files"
    while 2_000_000 not in sizes(waiting):
        assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert said(start(hub, tmp_path)).strip() == "a" * 40
    assert arrived(tmp_path) == {**FILES}
    assert ranges(hub) == [None, "bytes=2000000-2999999"]


def test_a_full_disk_is_told_and_what_arrived_is_kept(hub: Hub, tmp_path: Path):
    assert "StorageFullError" in (text := said(start(hub, tmp_path, limit=1_000_000)))
    assert "no room to write (File too large)" in text
    assert StorageFullError.__name__ in text
    assert said(start(hub, tmp_path)).strip() == "a" * 40
    assert arrived(tmp_path) == FILES
    assert ranges(hub) == [None, "bytes=1000000-2999999"]


def test_a_login_file_is_used(hub: Hub, tmp_path: Path):
    hub.token = "hf_of_the_file"
    (tmp_path / "home").mkdir()
    (tmp_path / "home/token").write_text(hub.token)
    assert said(start(hub, tmp_path)).strip() == "a" * 40
    assert arrived(tmp_path) == FILES


def test_offline_what_is_complete_is_served_and_said(hub: Hub, tmp_path: Path):
    assert "HF_HUB_OFFLINE is set, which forbids to ask it" in said(start(hub, tmp_path, HF_HUB_OFFLINE="1"))
    hub.events[SMALL] = [Event(status=403)]
    assert "DataError" in said(start(hub, tmp_path))
    offline = said(start(hub, tmp_path, HF_HUB_OFFLINE="1"))
    assert re.search(
        r"HubUnreachableError .*HF_HUB_OFFLINE is set, and \d of 3 files are not here yet, such as .*: unset it",
        offline,
    )
    for name, data in FILES.items():
        (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "out" / name).write_bytes(data)
    hub.requests.clear()
    served = said(start(hub, tmp_path, HF_HUB_OFFLINE="1"))
    assert "a" * 40 in served
    assert "is made of the 3 files that an earlier attempt has brought" in served
    assert hub.requests == []
    assert arrived(tmp_path) == FILES
