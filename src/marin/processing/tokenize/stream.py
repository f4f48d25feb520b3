"""What the trainer reads of any token cache, ours or another tool's: one flat stream of tokens with document ends."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


class TokenStream(Protocol):
    """One split of a token cache. Positions count tokens from 0; reading is safe from several threads.

    An implementation is right when it passes ``TokenStreamContract`` in ``tests/processing/tokenize/contract.py``.
    """

    @property
    def num_tokens(self) -> int:
        """Tokens of the split, those that end documents included."""
        ...

    @property
    def num_documents(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """``uint16`` or ``uint32``."""
        ...

    def tokens(self, start: int, count: int) -> Ids:
        """``count`` tokens from ``start`` on; read-only, a view where it can be. ``IndexError`` outside the stream."""
        ...

    def windows(self, starts: npt.NDArray[np.integer[Any]], length: int) -> Ids:
        """Windows of ``length`` tokens at ``starts``: a new array of shape (len(starts), length)."""
        ...

    def document_ends(self, start: int, count: int) -> Ints:
        """Ascending positions just behind each document that ends in ``(start, start + count]``."""
        ...

    def loss_mask(self, start: int, count: int) -> Mask | None:
        """Which of these tokens are learned; ``None``: all, as the cache has no mask."""
        ...
