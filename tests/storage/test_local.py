"""What is particular to a disk: locks between processes, kills, faults of the operating system, links, permissions."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin.errors import (
    AddressOccupiedError,
    NotBuiltError,
    StorageFullError,
    StoreBusyError,
    StoreError,
    StoreReadOnlyError,
)
from marin.storage import folder as folders
from marin.storage.local import LocalStore

RECORD = "poems/dev/.artifact.json"
BUILD = "poems/dev/.builds/b1"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", durable=False)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def running(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A child that has printed its first line; killed at the end."""
    with python(code, *arguments) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


# Many processes


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
        wins = {me: child.communicate(timeout=60)[0].split() for me, child in enumerate(children)}
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


def test_writers_and_removers_do_not_disturb_each_other(store: LocalStore):
    def write(_: int) -> None:
        for number in range(100):
            store.compare_and_swap(f"a/b/{number % 3}", None, b"x" * 10_000)
            assert store.read(f"a/b/{number % 3}") in (None, b"x" * 10_000)

    def remove(_: int) -> None:
        for number in range(100):
            store.delete("a" if number % 2 else "a/b")

    with ThreadPoolExecutor(4) as pool:
        for work in [pool.submit(write, 0), pool.submit(write, 0), pool.submit(remove, 0), pool.submit(remove, 0)]:
            work.result(timeout=60)
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
        assert swap.result(timeout=30)


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
        child.wait(timeout=30)
        assert store.remove_unheld(BUILD)
    assert store.list("poems/dev/.builds") == []


# Kills

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
    assert store.publish("poems/dev/.artifact.json", b"building", b"built", "poems/dev/.builds/b1")
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
            code = child.wait(timeout=60)
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
            assert [name for name in killed.list("poems/dev") if name != ".builds/"] == [
                ".artifact.json",
                ".manifest.json",
                "a",
                "shards/",
            ]
            assert killed.read("poems/dev/a") == f"first: {BUILD}/a".encode()
            continue
        assert killed.unpublish(RECORD, b"building", b"building again", "poems/dev/.builds/strays")
        assert all(name.startswith(".") for name in killed.list("poems/dev"))
        for path in ("a", "shards/new", ".manifest.json"):
            killed.write(f"poems/dev/.builds/b2/{path}", b"second")
        assert killed.publish(RECORD, b"building again", b"built", "poems/dev/.builds/b2")
        assert killed.list("poems/dev") == [".artifact.json", ".builds/", ".manifest.json", "a", "shards/"]
        assert killed.list("poems/dev/shards") == ["new"]
        assert contents(killed, "") == sorted([*everything, *["second"] * 3])
        assert not [name for name in os.listdir(killed.url("poems/dev")) if name.startswith(folders.TEMPORARY)]
    assert seen == sorted(seen, key=[b"building", b"built"].index)
    assert {b"building", b"built"} == set(seen)


def test_a_record_whose_writer_is_killed_at_any_moment_is_old_or_new(store: LocalStore):
    for killed in killed_at_each_step("swap", lambda: prepared(store)):
        record = killed.read(RECORD)
        assert record in (b"building", b"built")
        assert killed.list("poems/dev") == [".artifact.json", ".builds/", "a", "stray"]
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


# Faults


def failing(monkeypatch: pytest.MonkeyPatch, name: str, code: int, *, after: int = 0) -> None:
    """Lets ``os.<name>`` fail, from the call after the first ``after`` ones on."""
    real, calls = getattr(os, name), iter(range(1_000_000))

    def fail(*arguments: object, **options: object) -> object:
        if next(calls) < after:
            return real(*arguments, **options)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("call", ["write", "rename", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_and_leaves_the_record_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
):
    store = LocalStore(tmp_path)
    store.write(RECORD, b"old")
    with monkeypatch.context() as patch:
        failing(patch, call, code)
        with pytest.raises(StorageFullError, match=r"/poems/dev/\.artifact\.json: no room .*: free space .* --prefix"):
            store.compare_and_swap(RECORD, b"old", b"new")
    assert store.read(RECORD) == b"old"
    assert os.listdir(tmp_path / "poems/dev") == [".artifact.json"]


def test_a_write_that_is_cut_short_leaves_the_record_as_it_was(store: LocalStore):
    store.write(RECORD, b"old")
    code = """
import resource, sys
from marin.errors import StorageFullError
from marin.storage.local import LocalStore
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    LocalStore(sys.argv[1]).compare_and_swap("poems/dev/.artifact.json", b"old", b"new" * 1000)
except StorageFullError:
    sys.exit(7)
"""
    with python(code, store.root) as child:
        assert child.wait(timeout=60) == 7
    assert store.read(RECORD) == b"old"
    assert os.listdir(store.url("poems/dev")) == [".artifact.json"]


@pytest.mark.parametrize("moves", range(4))
def test_a_disk_that_fills_up_while_publishing_takes_nothing_apart(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, moves: int
):
    store.write(RECORD, b"building")
    for name in ("a", "b/c", "d"):
        store.write(f"{BUILD}/{name}", b"1")
    with monkeypatch.context() as patch:
        real, calls = os.rename, iter(range(100))

        def fail_once(*arguments: str, **options: int) -> None:
            if next(calls) == moves:
                raise OSError(errno.ENOSPC, "full")
            real(*arguments, **options)

        patch.setattr(os, "rename", fail_once)
        with pytest.raises(StorageFullError):
            store.publish(RECORD, b"building", b"built", BUILD)
    assert store.read(RECORD) == b"building"
    assert store.list("poems/dev") == [".artifact.json", ".builds/"]
    assert store.list(BUILD) == ["a", "b/", "d"]


def test_data_stays_published_when_only_the_last_sync_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = LocalStore(tmp_path)
    store.write(RECORD, b"building")
    store.write(f"{BUILD}/a", b"1")
    with monkeypatch.context() as patch:
        failing(patch, "fsync", errno.EIO, after=3)  # after the moves, the folder again, the record's bytes
        with pytest.raises(StoreError, match="refused to write it"):
            store.publish(RECORD, b"building", b"built", BUILD)
    assert (store.read(RECORD), store.read("poems/dev/a")) == (b"built", b"1")


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_read_only_store_serves_and_says_why_it_can_not_be_written(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, code: int
):
    store.write(RECORD, b"built")
    real = os.open

    def read_only(path: str, flags: int, *arguments: int, **options: int | None) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(code, os.strerror(code))
        return real(path, flags, *arguments, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(os, "open", read_only)
    for name in ("mkdir", "rename", "unlink", "rmdir"):
        failing(monkeypatch, name, code)
    assert store.read(RECORD) == b"built"
    assert store.list("poems/dev") == [".artifact.json"]
    with store.hold("poems/dev"):
        pass
    assert not store.compare_and_swap(RECORD, None, b"new")
    for attempt in (
        lambda: store.compare_and_swap(RECORD, b"built", b"new"),
        lambda: store.compare_and_swap("other/dev/.artifact.json", None, b"new"),
        lambda: store.write(RECORD, b"new"),
        lambda: store.delete(RECORD),
        lambda: store.make_folder(BUILD),
        lambda: store.move_folder("poems/dev", "trash"),
        lambda: store.remove_unheld("poems/dev"),
    ):
        with pytest.raises(StoreReadOnlyError, match=rf"^{store.root}/\S+ can't be written .*permission .* --prefix"):
            attempt()


def test_what_may_not_be_read_says_whom_to_ask(store: LocalStore, monkeypatch: pytest.MonkeyPatch):
    store.write(RECORD, b"built")
    failing(monkeypatch, "open", errno.EACCES)
    with pytest.raises(StoreError, match=r"/poems/dev/\.artifact\.json can't be read .*ask its owner"):
        store.read(RECORD)


# Something in the way


def test_a_file_where_a_folder_should_be_is_named(store: LocalStore):
    store.write("poems", b"somebody's file")
    for attempt in (
        lambda: store.read(RECORD),
        lambda: store.write(RECORD, b""),
        lambda: store.compare_and_swap(RECORD, None, b""),
        lambda: store.make_folder(BUILD),
        lambda: store.hold("poems").__enter__(),
        lambda: store.move_folder("poems", "trash"),
    ):
        with pytest.raises(
            AddressOccupiedError, match=rf"^{store.root}/poems is a file where a folder should be: move"
        ):
            attempt()
    assert store.read("poems") == b"somebody's file"
    assert store.list(RECORD) == []


def test_a_folder_where_a_file_should_be_is_named(store: LocalStore):
    store.write("a/b", b"")
    for attempt in (
        lambda: store.read("a"),
        lambda: store.write("a", b""),
        lambda: store.compare_and_swap("a", None, b""),
    ):
        with pytest.raises(AddressOccupiedError, match=rf"^{store.root}/a is a folder that is in the way: move it"):
            attempt()
    assert os.listdir(store.root) == ["a"]


def test_a_link_to_nothing_is_absent_and_can_be_replaced(store: LocalStore):
    store.make_folder("a")
    for name, target in {"dangling": "nowhere", "loop": "loop"}.items():
        os.symlink(target, store.url(f"a/{name}"))
        assert store.read(f"a/{name}") is None
        assert store.list("a") == []
        assert store.compare_and_swap(f"a/{name}", None, b"1")
        assert store.read(f"a/{name}") == b"1"
        store.delete(f"a/{name}")


def test_an_address_that_links_to_nothing_is_not_replaced(store: LocalStore):
    store.make_folder("poems")
    os.symlink("/mnt/not-mounted-today", store.url("poems/dev"))
    assert store.read(RECORD) is None
    for attempt in (lambda: store.compare_and_swap(RECORD, None, b""), lambda: store.make_folder(BUILD)):
        with pytest.raises(AddressOccupiedError, match=r"poems/dev is a link to something that is not there: bring"):
            attempt()
    assert os.readlink(store.url("poems/dev")) == "/mnt/not-mounted-today"


def test_an_address_may_be_a_link_to_a_bigger_disk(store: LocalStore, tmp_path: Path):
    (tmp_path / "big").mkdir()
    store.make_folder("poems")
    os.symlink(tmp_path / "big", store.url("poems/dev"))
    assert store.compare_and_swap(RECORD, None, b"1")
    assert (tmp_path / "big/.artifact.json").read_bytes() == b"1"
    store.delete("poems/dev")
    assert (tmp_path / "big/.artifact.json").read_bytes() == b"1"
    assert store.list("poems") == []


# Modes and removal


def test_new_files_follow_the_umask_and_the_group_of_their_folder(store: LocalStore):
    os.makedirs(store.root)
    os.chmod(store.root, 0o2775)
    before = os.umask(0o002)
    try:
        store.compare_and_swap(RECORD, None, b"1")
        store.compare_and_swap(RECORD, b"1", b"2")
        store.make_folder(BUILD)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(store.url(RECORD)).st_mode) == 0o664
    assert stat.S_IMODE(os.stat(store.url(BUILD)).st_mode) == 0o2775


def test_folders_that_a_step_made_read_only_are_removed(store: LocalStore, monkeypatch: pytest.MonkeyPatch):
    store.write("a/b/c", b"1")
    os.chmod(store.url("a/b"), 0o555)
    real = os.unlink

    def unlink(path: str, *, dir_fd: int | None = None) -> None:  # so that it also holds for root
        if not os.stat(os.path.dirname(path) or ".", dir_fd=dir_fd).st_mode & stat.S_IWUSR:
            raise PermissionError(errno.EACCES, "read-only folder")
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    store.delete("a")
    assert os.listdir(store.root) == []


def test_links_out_of_a_removed_folder_are_not_followed(store: LocalStore, tmp_path: Path):
    (tmp_path / "precious").write_text("1")
    store.make_folder("a")
    os.symlink(tmp_path, store.url("a/up"))
    store.delete("a")
    assert (tmp_path / "precious").read_text() == "1"


def test_each_location_counts_for_a_store_behind_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = LocalStore(tmp_path / "link/")
    assert store.relative(f"{tmp_path}/link/a/b") == "a/b"
    assert store.relative(f"{tmp_path.resolve()}/real/a/b") == "a/b"
    assert store.relative(f"{tmp_path}/realm/a") is None


def test_a_durable_swap_syncs_the_bytes_before_and_the_folder_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = LocalStore(tmp_path)
    store.make_folder("a")
    events: list[str] = []
    sync, rename = os.fsync, os.rename

    def record_sync(descriptor: int) -> None:
        events.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        sync(descriptor)

    def record_rename(*arguments: str, **options: int) -> None:
        events.append("rename")
        rename(*arguments, **options)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "rename", record_rename)
    store.compare_and_swap("a/record", None, b"1")
    assert events == ["sync file", "rename", "sync folder"]
    events.clear()
    LocalStore(tmp_path, durable=False).compare_and_swap("a/record", b"1", b"2")
    assert events == ["rename"]


def test_sync_reaches_every_file_before_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = LocalStore(tmp_path)
    for path in ("b/x", "b/c/y"):
        store.write(path, b"1")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    store.sync("b")
    names = [os.path.relpath(path, os.path.realpath(tmp_path)) for path in synced]
    assert names == ["b/c/y", "b/c", "b/x", "b", "."]
