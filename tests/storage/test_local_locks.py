"""Writers, readers and removers of one folder, in one process and in many."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin.errors import (
    NotBuiltError,
    StoreBusyError,
)
from marin.storage import folder as folders
from marin.storage.local import LocalStore
from tests.executors.processes import PATIENCE
from tests.storage.children import running

RECORD = "poems/dev/.artifact.json"
BUILD = "poems/dev/.build-b1"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", durable=False)


COMPETE = """
import sys
from marin.storage.local import LocalStore
store, me = LocalStore(sys.argv[1], durable=False), sys.argv[2].encode()
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    if store.compare_and_swap(f"rounds/{number}/record", None, me):
        print(number, flush=True)
    while True:
        seen = store.read("counter") or b"0"
        if store.compare_and_swap("counter", seen if seen != b"0" else None, b"%d" % (int(seen) + 1)):
            break
"""


def test_of_many_processes_exactly_one_wins_each_round_and_no_update_is_lost(store: LocalStore):
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(running(COMPETE, store.root, me)) for me in range(4)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        wins = {me: child.communicate(timeout=PATIENCE)[0].split() for me, child in enumerate(children)}
    assert sorted(int(number) for won in wins.values() for number in won) == list(range(100))
    for me, won in wins.items():
        assert all(store.read(f"rounds/{number}/record") == b"%d" % me for number in won)
    assert store.read("counter") == b"400"


# The folder changes under a waiting writer


def at_next_lock(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Lets ``action`` happen after the next writer has opened its folder and before it gets the lock."""
    lock, pending = fcntl.flock, [action]

    def intercept(folder: int, operation: int) -> None:
        if pending:
            pending.pop()()
        lock(folder, operation)

    monkeypatch.setattr(fcntl, "flock", intercept)


def test_a_swap_counts_in_the_folder_that_replaced_the_opened_one(store: LocalStore, monkeypatch: pytest.MonkeyPatch):
    store.write(RECORD, b"old")
    folder = Path(store.url("poems/dev"))

    def replace_folder() -> None:
        folder.rename(folder.with_name("trash"))
        folder.mkdir()

    at_next_lock(monkeypatch, replace_folder)
    assert store.compare_and_swap(RECORD, None, b"new")
    assert store.read(RECORD) == b"new"
    assert store.read("poems/trash/.artifact.json") == b"old"


def test_a_swap_makes_the_folder_that_was_removed_under_it(store: LocalStore, monkeypatch: pytest.MonkeyPatch):
    store.write(RECORD, b"old")
    at_next_lock(monkeypatch, lambda: shutil.rmtree(store.url("poems")))
    assert store.compare_and_swap(RECORD, None, b"new")
    assert store.read(RECORD) == b"new"


def test_a_swap_of_a_record_that_was_removed_under_it_fails(store: LocalStore, monkeypatch: pytest.MonkeyPatch):
    store.write(RECORD, b"old")
    at_next_lock(monkeypatch, lambda: shutil.rmtree(store.url("poems")))
    assert not store.compare_and_swap(RECORD, b"old", b"new")
    assert store.list("") == []


def test_a_folder_removed_under_a_reader_is_not_held(store: LocalStore, monkeypatch: pytest.MonkeyPatch):
    store.make_folder(BUILD)
    at_next_lock(monkeypatch, lambda: shutil.rmtree(store.url(BUILD)))
    with pytest.raises(NotBuiltError):
        with store.hold(BUILD):
            pytest.fail("held a folder that is not there")


@pytest.mark.parametrize("durable", [False, True])
def test_writers_and_removers_do_not_disturb_each_other(tmp_path: Path, durable: bool):
    store = LocalStore(tmp_path / "store", durable=durable)

    def swap() -> None:
        for number in range(50):
            store.compare_and_swap(f"a/b/{number % 3}", None, b"x" * 10_000)
            assert store.read(f"a/b/{number % 3}") in (None, b"x" * 10_000)

    def write() -> None:
        for number in range(50):
            store.write(f"a/b/{number % 3}", b"x" * 10_000)

    def make() -> None:
        for number in range(50):
            store.make_folder(f"a/c/{number}")

    def remove() -> None:
        for number in range(100):
            store.delete("a" if number % 2 else "a/b")

    with ThreadPoolExecutor(8) as pool:
        for work in [
            pool.submit(action) for action in (swap, write, make, remove) for _ in range(2 - (action is make))
        ]:
            work.result(timeout=PATIENCE)
    store.delete("a")
    assert os.listdir(store.root) == []


# Locks


def test_a_lock_that_is_never_released_is_an_error_that_names_the_folder(tmp_path: Path):
    store = LocalStore(tmp_path, durable=False, lock_timeout=0.05)
    store.write(RECORD, b"1")
    stuck = os.open(tmp_path / "poems/dev", os.O_RDONLY)
    fcntl.flock(stuck, fcntl.LOCK_EX)
    with pytest.raises(StoreBusyError, match=r"poems/dev: another process has kept .* 0\.05 s.*`fuser .*try again"):
        store.compare_and_swap(RECORD, b"1", b"2")
    os.close(stuck)
    assert store.compare_and_swap(RECORD, b"1", b"2")


def test_a_writer_waits_for_the_lock(store: LocalStore):
    store.write(RECORD, b"1")
    locked = folders.lock_folder(store.url("poems/dev"), exclusive=True, timeout=0)
    assert locked is not None
    with ThreadPoolExecutor(1) as pool:
        swap = pool.submit(store.compare_and_swap, RECORD, b"1", b"2")
        assert not threading.Event().wait(0.05)
        assert not swap.done()
        folders.unlock_folder(locked)
        assert swap.result(timeout=PATIENCE)


def test_a_lock_ends_although_a_child_was_forked_meanwhile(store: LocalStore):
    store.make_folder("a")
    locked = folders.lock_folder(store.url("a"), exclusive=True, timeout=0)
    assert locked is not None
    ours, childs = os.pipe()
    child = os.fork()
    if not child:
        os.close(childs)
        os.read(ours, 1)
        os._exit(0)
    try:
        folders.unlock_folder(locked)
        again = folders.lock_folder(store.url("a"), exclusive=True, timeout=0)
        assert again is not None
        folders.unlock_folder(again)
    finally:
        os.close(childs)
        os.close(ours)
        os.waitpid(child, 0)


HOLD = """
import sys
from marin.storage.local import LocalStore
with LocalStore(sys.argv[1]).hold(sys.argv[2]):
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_folder_held_by_another_process_is_removed_once_that_is_killed(store: LocalStore):
    store.make_folder(BUILD)
    with running(HOLD, store.root, BUILD) as child:
        assert not store.remove_unheld(BUILD)
        child.kill()
        child.wait(timeout=PATIENCE)
        assert store.remove_unheld(BUILD)
    assert store.list("poems/dev") == []
