"""Modes, links and durability: what is particular to a store on a disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from marin.errors import StoreError
from marin.storage.local import LocalStore

RECORD = "poems/dev/.artifact.json"
BUILD = "poems/dev/.build-b1"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", durable=False)


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

    def record_sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", record_sync)
    store.sync("b")
    names = [os.path.relpath(path, os.path.realpath(tmp_path)) for path in synced]
    assert names == ["b/c/y", "b/c", "b/x", "b", "."]


def test_a_linked_folder_is_unlinked_not_emptied(store: LocalStore, tmp_path: Path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/a").write_text("1")
    store.make_folder("builds")
    os.symlink(tmp_path / "precious", store.url("builds/b1"))
    assert store.remove_unheld("builds/b1")
    assert os.listdir(store.url("builds")) == []
    assert (tmp_path / "precious/a").read_text() == "1"


@pytest.mark.parametrize("operation", ["publish", "unpublish"])
def test_what_a_killed_writer_left_is_cleared_when_an_attempt_starts_or_ends(store: LocalStore, operation: str):
    store.write(RECORD, b"building")
    store.write("poems/dev/.marin-tmp-0123456789abcdef", b"half a rec")
    store.make_folder(BUILD)
    assert getattr(store, operation)(RECORD, b"building", b"next", BUILD)
    assert [name for name in os.listdir(store.url("poems/dev")) if name != ".build-b1"] == [".artifact.json"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no folder here in which nobody can make one: NOT held")
def test_where_no_folder_can_be_made_one_error_says_so():
    with pytest.raises(StoreError, match="/proc/marin"):
        LocalStore("/proc/marin", durable=False).write("poems/record", b"x")
