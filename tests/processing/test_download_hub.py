"""Downloads from the hub, from a server on this machine that speaks its protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from marin.errors import DataError
from marin.execution.artifact import at_path
from marin.processing.download import DownloadedFile, HubDownload
from marin.processing.download_hub import matching
from marin.processing.hub import HubFile, Repository
from tests.processing.hub import Hub

FILES = {"README.md": b"# Poems", "data/a.parquet": b"rows" * 1000, "data/b.jsonl": b"{}\n"}

CHILD = """
import json, sys
from dataclasses import asdict
from marin.errors import DataError
from marin.processing.download import HubDownloadConfig
from marin.processing.download_hub import download

try:
    changes = json.loads(sys.argv[2])
    made = download(HubDownloadConfig(output_path=sys.argv[1], hf_id="org/poems", revision="main", **changes))
except DataError as fault:
    print(json.dumps({"fault": str(fault)}))
else:
    print(json.dumps(asdict(made)))
"""


def download(hub: Hub, folder: Path, **changes: Any) -> dict[str, Any]:
    """In a process of its own: the hub's client reads its address when it is imported."""
    environ = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", CHILD, str(folder / "out"), json.dumps(changes)]
    child = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def arrived(folder: Path) -> dict[str, bytes]:
    out = folder / "out"
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_the_files_of_one_commit_arrive_under_their_names_and_nothing_else(tmp_path: Path, kind: str):
    hub = Hub(FILES)
    with hub.serve():
        made = download(hub, tmp_path, kind=kind)
    assert arrived(tmp_path) == FILES
    assert made["commit"] == "a" * 40
    assert made["source"] == f"hf://{'datasets/' if kind == 'dataset' else ''}org/poems@{'a' * 40}"
    assert [file["name"] for file in made["files"]] == sorted(FILES)


def test_globs_choose_files_and_one_that_matches_nothing_lists_near_misses(tmp_path: Path):
    hub = Hub(FILES)
    with hub.serve():
        made = download(hub, tmp_path, urls_glob=["*.jsonl", "*/a.*"])
        nothing = download(hub, tmp_path, urls_glob=["data/*.json"])
    assert [file["name"] for file in made["files"]] == ["data/a.parquet", "data/b.jsonl"]
    assert "has no file that matches 'data/*.json'; it has data/b.jsonl" in nothing["fault"]


@pytest.mark.parametrize("name", ["data/a.parquet", "README.md"])
def test_a_file_that_arrives_damaged_is_refused_and_the_next_attempt_fetches_it_alone(tmp_path: Path, name: str):
    hub = Hub(FILES)
    hub.damaged = {name: FILES[name].swapcase()}
    with hub.serve():
        assert f"{name} arrived damaged" in download(hub, tmp_path)["fault"]
        hub.damaged, hub.commit = {}, "b" * 40
        before = set(arrived(tmp_path)) & set(FILES)
        hub.requests.clear()
        made = download(hub, tmp_path)
    assert made["commit"] == "a" * 40
    assert arrived(tmp_path) == FILES
    fetched = {path.split("/resolve/")[1].split("/", 1)[1] for path in hub.requests if "/resolve/" in path}
    # One that was cut off when the damage was seen may have had all its bytes: it need not be fetched again.
    assert {name} <= fetched <= set(FILES) - before


def test_all_files_are_meant_without_a_glob():
    files = [HubFile(name=name, size=1, sha256=None, blob_id="") for name in FILES]
    repository = Repository(name="org/poems", kind="dataset", commit="a" * 40)
    assert matching(files, (), repository) == files
    with pytest.raises(DataError, match=r"org/poems@a+ has no file that matches '\*\.csv'; it has none"):
        matching([], ["*.csv"], repository)


def test_the_check_finds_missing_and_short_files(tmp_path: Path):
    file = DownloadedFile(name="a", bytes=2, sha256="")
    made = at_path(HubDownload(source="hf://org/poems", commit="a" * 40, files=(file,)), str(tmp_path))
    with pytest.raises(DataError, match="is missing or has not 2 bytes"):
        made.verify()
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(DataError, match="is missing or has not 2 bytes"):
        made.verify()
    (tmp_path / "a").write_bytes(b"xy")
    made.verify()
