from pathlib import Path

import pytest

from marin.storage.local import LocalStore
from marin.storage.store import BuildStore
from tests.storage.contract import BuildStoreContract


class TestLocalStore(BuildStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> BuildStore:
        return LocalStore(tmp_path / "store", durable=False)


class TestDurableLocalStore(BuildStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> BuildStore:
        return LocalStore(tmp_path / "my “store” 詩 'x'")


class TestLocalStoreBehindALink(BuildStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> BuildStore:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        return LocalStore(tmp_path / "link" / "store", durable=False)
