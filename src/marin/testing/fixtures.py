"""The fixtures for pytest. Named by ``marin.testing``; nothing else imports it, as it needs pytest."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from marin.testing.store import TemporaryStore, temporary_store


@pytest.fixture
def marin_store(tmp_path: Path) -> Generator[TemporaryStore]:
    """A store for one test, kept by pytest with the rest of ``tmp_path`` for a look afterwards."""
    with temporary_store(tmp_path / "marin_store") as store:
        yield store
