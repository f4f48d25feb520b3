"""What the rest of Marin asks of a store, whether it is a disk, a bucket or a dictionary."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from marin.errors import InvalidNameError

RECORD_NAME = ".artifact.json"
"""The record of an artifact, directly below its address."""

BUILD_PREFIX = ".build-"
"""Begins the name of an attempt's own folder, directly below its artifact's address."""

JOB_PREFIX = ".job-"
"""Begins the name of the folder in which an attempt's process and its supervisor talk to each other."""

STRAY_PREFIX = ".stray-"
"""Begins the name of a folder at an address with what lay there and belonged to nobody. Never removed by a build."""

LOGS_FOLDER = ".logs"
"""Folder below an artifact's address with the logs of its attempts."""

_OURS = (BUILD_PREFIX, JOB_PREFIX, STRAY_PREFIX, ".marin-tmp-")


def is_ours(name: str) -> bool:
    """Whether a name at an address is one that Marin keeps for itself."""
    return name in (RECORD_NAME, LOGS_FOLDER) or name.startswith(_OURS)


def is_data(name: str) -> bool:
    """Whether what is called so at an address is data: not ours, nor a removed file that NFS keeps while it is open."""
    return not is_ours(name) and not name.startswith(".nfs")


Names: TypeAlias = list[str]
"""Needed because inside the classes ``list`` is the method."""


class Store(Protocol):
    """A flat map from relative ``/``-paths to bytes, shared by all workers.

    An implementation is right when it passes ``StoreContract`` in ``tests/storage/contract.py``. Every method raises
    a ``StoreError`` that names the location when the store can't do what is asked.
    """

    def read(self, path: str) -> bytes | None:
        """The bytes at ``path``. None: nothing is there, or a link to nothing."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Put ``data`` at ``path`` as a whole: a reader sees what was there before, or all of it."""
        ...

    def compare_and_swap(self, path: str, expected: bytes | None, new: bytes) -> bool:
        """Put ``new`` at ``path`` if ``expected`` is there (None: if nothing is). Of many callers one gets True."""
        ...

    def list(self, path: str) -> Names:
        """Sorted names of what lies directly below ``path``, folders ending with ``/``. Empty if nothing is there."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, or a folder and all below it. Nothing there is fine."""
        ...


class BuildStore(Store, Protocol):
    """A store in which artifacts can be built: step functions write into its folders by absolute location.

    An implementation is right when it passes ``BuildStoreContract`` in ``tests/storage/contract.py``.
    """

    @property
    def publishes_by_moving(self) -> bool:
        """Whether ``publish`` brings the data to the artifact's address. False: it stays in its build folder."""
        ...

    def url(self, path: str) -> str:
        """The absolute location of ``path``, as a step function gets it."""
        ...

    def relative(self, url: str) -> str | None:
        """The path whose location is ``url``. None: it lies outside this store."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a new, empty folder and the folders above it. ``AddressOccupiedError`` if something is there."""
        ...

    def move_folder(self, source: str, target: str) -> None:
        """Move a folder, once nobody holds or changes it. ``AddressOccupiedError`` if ``target`` exists."""
        ...

    def sync(self, path: str) -> None:
        """Make all files and folders at and below ``path`` survive a power cut, if the store is durable."""
        ...

    def publish(self, record_path: str, expected: bytes, new: bytes, build_folder: str) -> bool:
        """``compare_and_swap`` of the record that first moves what is in ``build_folder`` to the record's folder.

        False if the record is not ``expected``: then nothing is moved. What a publisher that was killed half-way left
        at the address is set aside in ``.stray-…``: nothing is lost, nothing is mixed. Folders of other attempts go,
        unless somebody holds them. Call ``sync`` on the build folder first. ``OutputError`` if the build holds a name
        that is reserved at the address.
        """
        ...

    def unpublish(self, record_path: str, expected: bytes | None, new: bytes, into: str) -> bool:
        """``compare_and_swap`` of the record that first moves what lies at its address into the folder ``into``.

        The way to start anew where a publisher was killed half-way. What is no data stays. ``into`` is made if
        there is something to move; what would overwrite something in it goes to ``.stray-…``.
        """
        ...

    def hold(self, path: str) -> AbstractContextManager[None]:
        """Keep a build folder from ``remove_unheld`` while it is read. Many may hold it; the end of a process lets go.

        ``NotBuiltError`` if the folder is not there. Never hold a folder with a record in it: changes would wait.
        """
        ...

    def remove_unheld(self, path: str) -> bool:
        """Remove a folder and all below it, unless somebody holds it. True if it is gone."""
        ...


_PATH = re.compile(r"(?!\.\.?(?:/|\Z))[^/\0]+(?:/(?!\.\.?(?:/|\Z))[^/\0]+)*")


def checked_path(path: str) -> str:
    """``path`` itself, if it names something below a store. Raises ``InvalidNameError`` for one that could lead out.

    >>> checked_path("tokenized/poems/dev/.artifact.json")
    'tokenized/poems/dev/.artifact.json'
    """
    if _PATH.fullmatch(path) is None:
        raise InvalidNameError(
            f"{path!r} is not a path in a store: write names joined by single slashes, without '.', '..' or a slash "
            "at either end, such as 'tokenized/poems/dev'"
        )
    return path
