import pytest

from marin.storage.memory import MemoryStore
from marin.storage.store import Store
from tests.storage.contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
