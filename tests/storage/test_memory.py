import pytest

from marin.storage.memory import MemoryStore
from marin.storage.store import BuildStore, Store
from tests.storage.contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


def test_nothing_can_be_built_in_memory_as_steps_write_files():
    """A type checker refuses it as a ``BuildStore``: none of what that adds is there, not even as a stub."""
    added = {name for name in vars(BuildStore) if not name.startswith("_")} - set(vars(Store))
    assert {"url", "make_folder", "publish", "hold"} <= added
    assert [name for name in added if hasattr(MemoryStore, name)] == []
