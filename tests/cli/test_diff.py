from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from marin.execution.manifest import FileEntry, ManifestSummary
from marin.storage.local import LocalStore
from tests.cli.commands import Terminal, marin, script
from tests.execution.records import STRANGER, attempt, build, put


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "marin_store", durable=False)


def diff(folder: Path, *words: str, **environ: str) -> str:
    done = marin(folder, "diff", *words, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def two(store: LocalStore, one: dict, other: dict) -> None:
    put(store, "model@2026.07.01", build(**one))
    put(store, "model@2026.07.02", build(**other))


def test_two_versions_that_were_built_differ_in_recipe_and_result(tmp_path: Path):
    path = script(tmp_path, "old = poems(version='2026.07.01')\nnew = poems(version='2026.07.02', lines=12)\n")
    assert marin(tmp_path, "run", path).returncode == 0
    text = diff(tmp_path, "raw/poems@2026.07.01", "2026.07.02")
    assert re.match(r" +raw/poems@2026\.07\.01 +raw/poems@2026\.07\.02\nartifact\n  version +2026\.07\.01 +", text)
    assert re.search(r'\nrecipe\n  fingerprint .*\n  config\["lines"\] +3 +12 +\+9 \(\+300 %\)\nresult\n', text)
    assert re.search(r"\nresult\n  lines +3 +12 +\+9 \(\+300 %\)\ndata\n", text)
    assert "the same: code, provenance" in text
    assert "function" not in text
    everything = diff(tmp_path, "raw/poems@2026.07.01", "raw/poems@2026.07.02", "--all")
    assert re.search(r"\n  function +pipeline:write +pipeline:write\n", everything)
    assert re.search(r"\n  packages\.msgspec +\S+ +\S+\n", everything)


def test_json_has_each_section_and_only_what_differs(tmp_path: Path, store: LocalStore):
    two(store, {"result": {"loss": 0.5, "steps": 3}}, {"result": {"loss": 0.25, "steps": 3}})
    told = json.loads(diff(tmp_path, "model@2026.07.01", "2026.07.02", "--json"))
    assert (told["a"], told["b"], told["equal"]) == ("model@2026.07.01", "model@2026.07.02", False)
    assert told["sections"]["result"] == [{"key": "loss", "a": 0.5, "b": 0.25, "same": False, "difference": -0.25}]
    assert told["sections"]["recipe"] == []
    told = json.loads(diff(tmp_path, "model@2026.07.01", "2026.07.02", "--json", "--all"))
    assert {"key": "steps", "a": 3, "b": 3, "same": True} in told["sections"]["result"]


def test_a_bare_name_is_its_newest_version_and_one_artifact_is_equal_to_itself(tmp_path: Path, store: LocalStore):
    two(store, {}, {})
    done = marin(tmp_path, "diff", "model", "model@2026.07.02")
    assert done.stderr == "model: the newest fixed version is 2026.07.02\n"
    assert done.stdout.startswith("model@2026.07.02 and model@2026.07.02 are the same in all that is recorded\n")
    assert json.loads(diff(tmp_path, "model", "2026.07.02", "--json"))["equal"] is True


def test_adopted_failed_and_building_artifacts_are_compared_as_far_as_their_records_go(
    tmp_path: Path, store: LocalStore
):
    put(store, "good@dev", build())
    put(store, "adopted@dev", build(data="/data", source="/data", manifest=None))
    put(store, "bad@dev", attempt=attempt(error="ValueError: no verse", frame="poems.py:12 in write"))
    put(store, "busy@dev", attempt=attempt(owner=STRANGER, inputs=build(deps=("raw@dev",)).deps))
    assert re.search(r"\n  source +- +/data\n", diff(tmp_path, "good@dev", "adopted@dev"))
    text = diff(tmp_path, "good@dev", "bad@dev")
    assert re.search(r"\n  attempt\.error +- +ValueError: no verse\n", text)
    assert "note: bad@dev keeps no recipe, only its fingerprint, it is failed\n" in text
    text = diff(tmp_path, "busy@dev", "good@dev")
    assert re.search(r"\n  state +building +built\n", text)
    assert re.search(r"\ninputs\n  raw +dev \(build b1\) +-\n", text)


def test_secrets_are_not_shown(tmp_path: Path, store: LocalStore):
    for number, id_ in enumerate(("a@dev", "b@dev")):
        secret = f"hunter{number}222"
        put(
            store,
            id_,
            build(result={"api_key": secret, "note": f"s3cr3t-value {number}"}, provenance={"password": secret}),
        )
    for words in ((), ("--all",), ("--json", "--all")):
        shown = diff(tmp_path, "a@dev", "b@dev", *words, MY_TOKEN="s3cr3t-value")
        assert "*** 0" in shown
        assert not re.search("hunter|s3cr3t", shown)


def test_a_long_list_is_abbreviated_for_people_and_whole_for_programs(tmp_path: Path, store: LocalStore):
    two(store, {"result": {"losses": list(range(10_000))}}, {"result": {"losses": list(range(1, 10_001))}})
    text = diff(tmp_path, "model@2026.07.01", "2026.07.02")
    assert text.count("  losses[") == 10
    assert "\n  … 9,990 more of losses\n" in text
    assert len(json.loads(diff(tmp_path, "model@2026.07.01", "2026.07.02", "--json"))["sections"]["result"]) == 10_000


@pytest.mark.parametrize("columns", [30, 60, 100, 200])
def test_a_table_fits_its_terminal_or_stands_below_each_other(tmp_path: Path, store: LocalStore, columns: int):
    two(store, {"provenance": {"command": "x" * 50 + "a"}}, {"provenance": {"command": "x" * 50 + "b"}})
    code, text = Terminal(tmp_path, "diff", "model@2026.07.01", "2026.07.02", columns=columns).end()
    lines = [re.sub(r"\x1b\[\d+m", "", line) for line in text.splitlines()]
    assert code == 0
    assert all(len(line) <= columns for line in lines), lines
    assert any(line.startswith("    - xxx") for line in lines) == (columns == 30)
    assert "\x1b[1m" in text


def test_on_pipes_and_with_no_color_there_are_no_colors(tmp_path: Path, store: LocalStore):
    two(store, {}, {"result": {}})
    assert "\x1b[" not in diff(tmp_path, "model@2026.07.01", "2026.07.02")
    assert "\x1b[" not in Terminal(tmp_path, "diff", "model@2026.07.01", "2026.07.02", NO_COLOR="1").end()[1]


def test_files_are_compared_by_their_path(tmp_path: Path, store: LocalStore):
    def data(**sizes: int) -> ManifestSummary:
        listed = tuple(FileEntry(path=f"{name}.txt", bytes=size, sha256="00" * 32) for name, size in sizes.items())
        return ManifestSummary(files=len(sizes), bytes=sum(sizes.values()), digest="11" * 32, listed=listed)

    two(store, {"manifest": data(a=1, c=3)}, {"manifest": data(a=1, b=2, c=4)})
    rows = json.loads(diff(tmp_path, "model@2026.07.01", "2026.07.02", "--json"))["sections"]["data"]
    assert [row["key"] for row in rows] == [
        "files",
        "bytes",
        'file["c.txt"].bytes',
        'file["b.txt"].bytes',
        'file["b.txt"].sha256',
    ]


@pytest.mark.parametrize("mistyped", ["2026-07-02", "2026.7.2", "v2026.07.02", "20260702", "2026.07"])
def test_a_mistyped_version_is_not_taken_for_a_name(tmp_path: Path, store: LocalStore, mistyped: str):
    two(store, {}, {})
    done = marin(tmp_path, "diff", "model@2026.07.01", mistyped)
    assert done.returncode == 1
    assert f"{mistyped!r} is not a version of 'model'" in done.stderr
    assert ("did you mean 2026.07.02" in done.stderr) == (mistyped != "2026.07")


def test_a_name_may_begin_with_a_digit(tmp_path: Path, store: LocalStore):
    two(store, {}, {})
    put(store, "1b@2026.07.01", build())
    assert "  name " in diff(tmp_path, "model@2026.07.01", "1b")


def test_what_is_not_there_or_not_readable_is_an_error(tmp_path: Path, store: LocalStore):
    two(store, {}, {})
    store.write("torn/dev/.artifact.json", b"{")
    store.write("new/dev/.artifact.json", b'{"schema": 99}')
    for words, said in (
        (("model@2026.07.01", "2026.07.03"), "model@2026.07.03 is not in "),
        (("model@2026.07.01", "torn@dev"), "is not a record of an artifact"),
        (("model@2026.07.01", "new@dev"), "install the newer Marin"),
    ):
        done = marin(tmp_path, "diff", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: ")
        assert said in done.stderr
