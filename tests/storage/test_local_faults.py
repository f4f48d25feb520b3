"""What the operating system refuses is said in words that help, and leaves the store as it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from marin.errors import (
    AddressOccupiedError,
    StorageFullError,
    StoreError,
    StoreReadOnlyError,
)
from marin.storage.local import LocalStore
from tests.executors.processes import PATIENCE
from tests.storage.children import python

RECORD = "poems/dev/.artifact.json"
BUILD = "poems/dev/.build-b1"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", durable=False)


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
        assert child.wait(timeout=PATIENCE) == 7
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
    assert store.list("poems/dev") == [".artifact.json", ".build-b1/"]
    assert store.list(BUILD) == ["a", "b/", "d"]


def test_data_stays_published_when_only_the_last_sync_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = LocalStore(tmp_path)
    store.write(RECORD, b"building")
    store.write(f"{BUILD}/a", b"1")
    store.write("poems/dev/.build-b0/left", b"by an attempt before")
    with monkeypatch.context() as patch:
        failing(patch, "fsync", errno.EIO, after=3)  # after the moves, the folder again, the record's bytes
        with pytest.raises(StoreError, match="refused to write it"):
            store.publish(RECORD, b"building", b"built", BUILD)
    assert (store.read(RECORD), store.read("poems/dev/a")) == (b"built", b"1")
    assert store.list("poems/dev") == [".artifact.json", "a"]


def test_a_build_that_was_taken_back_before_its_publisher_has_tidied_up_keeps_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As when the publisher is stopped there, and another one makes a dev version anew meanwhile."""
    store, other, tidy_up = LocalStore(tmp_path), LocalStore(tmp_path), LocalStore._remove_attempts
    store.write(RECORD, b"building")
    store.write(f"{BUILD}/a", b"1")

    def stopped(self: LocalStore, *where: Any) -> None:
        assert other.unpublish(RECORD, b"built", b"building anew", BUILD)
        tidy_up(self, *where)

    monkeypatch.setattr(LocalStore, "_remove_attempts", stopped)
    assert store.publish(RECORD, b"building", b"built", BUILD)
    assert store.read(f"{BUILD}/a") == b"1"


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
