"""What a layout has to answer: is this one of yours, where are the tokens, which tokenizer made them?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from marin.errors import ConfigurationError, DataError
from marin.processing.tokenize.foreign.flat import Chunk
from marin.processing.tokenize.manifest import TRAIN, VALIDATION

TEST = "test"

_SPLIT_OF_WORD = {
    "train": TRAIN,
    "training": TRAIN,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
    "dev": VALIDATION,
    "eval": VALIDATION,
    "heldout": VALIDATION,
    "test": TEST,
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Files that may be a cache. ``names`` are relative to ``root``, with ``/``, sorted.

    ``path`` is what the user gave. If that is one file, ``names`` are it and what is called the same up to a dot.
    """

    path: str
    root: str
    names: tuple[str, ...]
    lone: str | None = None

    def absolute(self, name: str) -> str:
        return os.path.join(self.root, *name.split("/"))

    def size(self, name: str) -> int:
        return os.stat(self.absolute(name)).st_size

    def ending(self, suffix: str) -> tuple[str, ...]:
        return tuple(name for name in self.names if name.endswith(suffix))

    def beginning_of(self, name: str, count: int) -> bytes:
        """The first ``count`` bytes of a file, or as many as it has."""
        with open(self.absolute(name), "rb") as file:
            return file.read(count)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Why a place is taken for a layout. ``names`` are the files that hold tokens, in reading order."""

    because: str
    names: tuple[str, ...]


class Layout(Protocol):
    """How one tool keeps tokens.

    An implementation is right when it passes ``TokenStreamContract`` in ``tests/processing/tokenize/contract.py``.
    ``name`` is what ``config={"layout": ...}`` calls it, ``looks_for`` ends the sentence "looked for ...".
    """

    @property
    def name(self) -> str: ...

    @property
    def looks_for(self) -> str: ...

    def recognise(self, place: Place) -> Evidence | None:
        """The files of ``place`` that are this layout's; ``None`` if there are none. Reads no more than headers."""
        ...

    def open(self, files: Sequence[str]) -> list[Chunk]:
        """The tokens of ``files``, mapped and not read. ``DataError`` for one that is damaged or of a strange type."""
        ...

    def tokenizer(self, files: Sequence[str]) -> str | None:
        """What the files say of the tokenizer that made them, as ``parse_tokenizer`` takes it."""
        ...


def look_at(path: str) -> Place:
    """The files below ``path``; of a path that is a file, it and its side files. Hidden ones are left out."""
    path = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(path):
        return Place(path=path, root=path, names=tuple(sorted(_names_below(path))))
    if not os.path.exists(path):
        raise ConfigurationError(f"{path} does not exist: give the folder, or one file, of a token cache")
    root, lone = os.path.split(path)
    stem = lone.partition(".")[0] + "."
    names = (entry.name for entry in os.scandir(root) if entry.is_file() and entry.name.startswith(stem))
    return Place(path=path, root=root, names=tuple(sorted(names)), lone=lone)


def _names_below(root: str) -> list[str]:
    names = list[str]()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inner = os.path.relpath(folder, root).replace(os.sep, "/")
        shown = [name for name in files if not name.startswith(".")]
        for name in shown:
            # Without this one that says what is learned, or where documents end, would be taken for absent.
            if not os.path.exists(path := os.path.join(folder, name)):
                raise DataError(f"{path} is a link to a file that is not there: mend it, or remove it")
        names.extend(name if inner == "." else f"{inner}/{name}" for name in shown)
    return names


def by_split(place: Place, names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """The files of each split, as file and folder names say; what says nothing is ``train``.

    Files that all name one split are ``train`` too: there is nothing that they are held out from.
    """
    splits = dict[str, list[str]]()
    for name in names:
        splits.setdefault(_split_of(place, name), []).append(name)
    if len(splits) == 1:
        return {TRAIN: tuple(names)}
    if TRAIN not in splits:
        raise ConfigurationError(
            f"{place.path} has no training split: its names say {', '.join(sorted(splits))}; give one of the files"
        )
    return {split: tuple(splits[split]) for split in sorted(splits)}


def _split_of(place: Place, name: str) -> str:
    # The nearest name counts: train_data/val.bin is validation.
    for part in reversed(name.split("/")):
        said = {_SPLIT_OF_WORD[word] for word in re.split("[^a-z]+", part.lower()) if word in _SPLIT_OF_WORD}
        if len(said) > 1:
            raise ConfigurationError(
                f"{place.absolute(name)} may be {' or '.join(sorted(said))} by its name: rename it, or give one file"
            )
        if said:
            return said.pop()
    return TRAIN
