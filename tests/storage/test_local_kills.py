"""A process that is killed at any moment leaves a store that the next one can go on with."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marin.storage import folder as folders
from marin.storage.local import LocalStore
from tests.executors.processes import PATIENCE
from tests.storage.children import python

RECORD = "poems/dev/.artifact.json"
BUILD = "poems/dev/.build-b1"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", durable=False)


KILLED = """
import os, signal, sys
from marin.storage.local import LocalStore

store, operation, fatal, calls = LocalStore(sys.argv[1]), sys.argv[2], int(sys.argv[3]), 0

def deadly(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

for name in ("open", "mkdir", "write", "fsync", "rename", "unlink", "rmdir"):
    setattr(os, name, deadly(getattr(os, name)))
if operation == "publish":
    assert store.publish("poems/dev/.artifact.json", b"building", b"built", "poems/dev/.build-b1")
elif operation == "swap":
    assert store.compare_and_swap("poems/dev/.artifact.json", b"building", b"built")
else:
    store.delete("poems")
"""


def killed_at_each_step(operation: str, prepare: Callable[[], LocalStore]) -> Iterator[LocalStore]:
    """Stores in which ``operation`` was killed before its first, second, … call of the system."""
    for fatal in range(1, 100):
        store = prepare()
        with python(KILLED, store.root, operation, fatal) as child:
            code = child.wait(timeout=PATIENCE)
        if code == 0:
            assert fatal > 4, "it was not killed at all"
            return
        assert code == -signal.SIGKILL
        yield store
    pytest.fail("it never ends")


def contents(store: LocalStore, path: str) -> list[str]:
    """The contents of all files below, except records."""
    files = [file for file in Path(store.url(path)).rglob("*") if file.is_file() and file.name != ".artifact.json"]
    return sorted(file.read_text() for file in files if not file.name.startswith(folders.TEMPORARY))


def prepared(store: LocalStore) -> LocalStore:
    if os.path.exists(store.root):
        shutil.rmtree(store.root)
    store.write(RECORD, b"building")
    for path in (f"{BUILD}/a", f"{BUILD}/shards/b", f"{BUILD}/.manifest.json", "poems/dev/a", "poems/dev/stray"):
        store.write(path, f"first: {path}".encode())
    return store


def test_a_publisher_killed_at_any_moment_loses_and_mixes_nothing(store: LocalStore):
    seen: list[bytes | None] = []
    everything = contents(prepared(store), "")
    for killed in killed_at_each_step("publish", lambda: prepared(store)):
        assert contents(killed, "") == everything
        seen.append(record := killed.read(RECORD))
        if record == b"built":
            assert [name for name in killed.list("poems/dev") if not name.startswith((".build-", ".stray-"))] == [
                ".artifact.json",
                ".manifest.json",
                "a",
                "shards/",
            ]
            assert killed.read("poems/dev/a") == f"first: {BUILD}/a".encode()
            continue
        assert killed.unpublish(RECORD, b"building", b"building again", "poems/dev/.stray-1")
        assert all(name.startswith(".") for name in killed.list("poems/dev"))
        for path in ("a", "shards/new", ".manifest.json"):
            killed.write(f"poems/dev/.build-b2/{path}", b"second")
        assert killed.publish(RECORD, b"building again", b"built", "poems/dev/.build-b2")
        assert [name for name in killed.list("poems/dev") if not name.startswith((".build-", ".stray-"))] == [
            ".artifact.json",
            ".manifest.json",
            "a",
            "shards/",
        ]
        assert killed.list("poems/dev/shards") == ["new"]
        left = contents(killed, "")
        assert left.count("second") == 3
        # Of the first attempt only what it had not moved may go, with its folder.
        assert {"first: poems/dev/a", "first: poems/dev/stray"} <= set(left) <= {*everything, "second"}
        assert not [name for name in os.listdir(killed.url("poems/dev")) if name.startswith(folders.TEMPORARY)]
    assert seen == sorted(seen, key=lambda record: record == b"built")
    assert {b"building", b"built"} == set(seen)


def test_a_record_whose_writer_is_killed_at_any_moment_is_old_or_new(store: LocalStore):
    for killed in killed_at_each_step("swap", lambda: prepared(store)):
        record = killed.read(RECORD)
        assert record in (b"building", b"built")
        assert killed.list("poems/dev") == [".artifact.json", ".build-b1/", "a", "stray"]
        assert killed.compare_and_swap(RECORD, record, b"next")


def test_a_folder_whose_remover_is_killed_at_any_moment_is_whole_or_gone(store: LocalStore):
    everything = contents(prepared(store), "")
    for killed in killed_at_each_step("delete", lambda: prepared(store)):
        assert killed.list("") in (["poems/"], [])
        if killed.list(""):
            assert contents(killed, "") == everything
        killed.make_folder("next")
        assert killed.remove_unheld("next")
        assert [name for name in os.listdir(killed.root) if name.startswith(folders.TEMPORARY)] == []
