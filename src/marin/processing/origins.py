"""Where the bytes of a file come from, and what may be wrong with an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server sends: the bytes from ``start`` to before ``end``, of ``size`` in all, where it tells them.

    ``validator`` is another one when the content is another one; ``None``: the server has none.
    """

    start: int
    end: int | None
    size: int | None
    validator: str | None
    chunks: Iterator[bytes]


class OutOfRange(Exception):
    """The server has nothing from there on; ``size`` is what it has in all, where it tells."""

    def __init__(self, size: int | None) -> None:
        super().__init__(size)
        self.size = size


class UnplacedPart(Exception):
    """The server sends a part of the file, but does not say which, or contradicts itself. The text says how."""


class NotTheFile(Exception):
    """The server answers that all is well, and what it sends is not the file. The text says what it is."""


class Origin(Protocol):
    """Where the bytes of one file come from."""

    @property
    def shown(self) -> str:
        """What messages call it."""
        ...

    def open(self, start: int, validator: str | None) -> AbstractContextManager[Answer]:
        """Its bytes from ``start`` on, or from 0 where that can't be had or ``validator`` is no longer its.

        It and the chunks raise ``PassingFault``, ``OutOfRange``, ``UnplacedPart``, or the ``MarinError`` that ends the
        matter.
        """
        ...
