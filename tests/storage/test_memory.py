import pytest
from tests.storage.contract import StoreContract

from marin.storage.memory import MemoryStore
from marin.storage.store import Store


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()
