import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin.errors import StoreFormatError
from marin.storage.format import ensure_format
from marin.storage.local import LocalStore
from marin.storage.prefix import open_store


def test_opening_a_store_writes_nothing(tmp_path: Path):
    store = open_store(str(tmp_path / "absent"))
    assert store.read("a") is None
    assert os.listdir(tmp_path) == []


def test_the_first_write_marks_the_store(tmp_path: Path):
    store = open_store(str(tmp_path / "data"))
    ensure_format(store)
    ensure_format(store)
    assert store.list("") == [".marin/"]
    assert json.loads((tmp_path / "data/.marin/format").read_bytes()) == {"format": 1}
    assert open_store(store.root).list("") == [".marin/"]


def test_the_default_store_keeps_itself_out_of_git(tmp_path: Path):
    ensure_format(LocalStore(tmp_path / "marin_store"))
    assert (tmp_path / "marin_store/.gitignore").read_text().splitlines()[-1] == "*"


def test_a_gitignore_of_the_user_stays(tmp_path: Path):
    (tmp_path / "marin_store").mkdir()
    (tmp_path / "marin_store/.gitignore").write_text("mine")
    ensure_format(LocalStore(tmp_path / "marin_store"))
    assert (tmp_path / "marin_store/.gitignore").read_text() == "mine"


def test_many_may_be_the_first_to_write(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ensure_format, [LocalStore(tmp_path / "marin_store", durable=False) for _ in range(16)]))
    assert LocalStore(tmp_path / "marin_store").list("") == [".gitignore", ".marin/"]


def test_a_store_of_a_newer_marin_is_refused(tmp_path: Path):
    LocalStore(tmp_path).write(".marin/format", b'{"format": 2, "more": "to come"}')
    for attempt in (lambda: open_store(str(tmp_path)), lambda: ensure_format(LocalStore(tmp_path))):
        with pytest.raises(StoreFormatError, match=rf"^the store {tmp_path} has format 2; .* up to 1: update Marin"):
            attempt()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"2", b"[]", b'{"format": "1"}', b'{"format": true}', b'{"format": 0}', b"{}", b"\xff"]
)
def test_a_mark_that_is_not_ours_is_refused(tmp_path: Path, content: bytes):
    LocalStore(tmp_path).write(".marin/format", content)
    with pytest.raises(StoreFormatError, match=r"/\.marin/format was not written by Marin: choose another store"):
        open_store(str(tmp_path))
