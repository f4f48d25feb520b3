"""The mark ``{prefix}/.marin/format`` that says which layout a store has.

Upgrade rule: format N+1 reads everything that format N wrote. A store gets a new number when a newer Marin writes to
it for the first time; an older Marin then refuses the whole store instead of misreading a part of it.
"""

from __future__ import annotations

import json
import os

from marin.errors import StoreFormatError
from marin.storage.store import BuildStore

FORMAT = 1
"""The layout that this Marin writes."""

FORMAT_PATH = ".marin/format"

DEFAULT_FOLDER = "marin_store"
"""Name of the store that Marin makes where the user names none."""


def has_format(store: BuildStore) -> bool:
    """Whether the store is marked, which it is from its first write on.

    Raises ``StoreFormatError`` if the mark is of a newer Marin, or no mark of ours.
    """
    mark = store.read(FORMAT_PATH)
    if mark is None:
        return False
    number = _number(mark)
    if number is None:
        raise StoreFormatError(
            f"{store.url(FORMAT_PATH)} was not written by Marin: choose another store with --prefix; "
            "if it is damaged and you know that this is a store of yours, remove that file"
        )
    if number > FORMAT:
        raise StoreFormatError(
            f"the store {store.url('')} has format {number}; this Marin knows formats up to {FORMAT}: "
            "update Marin, or choose another store with --prefix"
        )
    return True


def ensure_format(store: BuildStore) -> None:
    """Marks the store: whoever writes to it first calls this. Makes the store's folder. Cheap when done before.

    The default store also gets a ``.gitignore``, as it lies in the folder of somebody's project.
    """
    if has_format(store):
        return
    if os.path.basename(store.url("")) == DEFAULT_FOLDER:
        store.compare_and_swap(".gitignore", None, b"# Made by Marin: artifacts don't belong into git.\n*\n")
    if not store.compare_and_swap(FORMAT_PATH, None, json.dumps({"format": FORMAT}).encode() + b"\n"):
        has_format(store)


def _number(mark: bytes) -> int | None:
    try:
        content: object = json.loads(mark)
    except ValueError:
        return None
    number: object = content.get("format") if isinstance(content, dict) else None
    return number if type(number) is int and number > 0 else None
