from marin.testing.fixtures import marin_store

__all__ = ["marin_store"]
