"""Read the documents of a piece of input and encode them, by format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, final

import numpy as np
import numpy.typing as npt

from marin.processing.bad_records import BadRecords
from marin.processing.documents import ABSENT, Unfit, read_documents, read_rows
from marin.processing.pieces import Piece
from marin.processing.tokenize.chat import ChatEncoder
from marin.processing.tokenize.encoder import framed
from marin.processing.tokenize.engines import Engine
from marin.processing.tokenize.formats import ChatFormat, PrebuiltFormat
from marin.processing.tokenize.manifest import Framing

_AT_ONCE = 1 << 20


class Encoded(NamedTuple):
    """Documents one after the other: their ids, the length of each, and which ids are learned (``None``: all).

    ``sizes``: bytes of the text of each as UTF-8; ``None``: those that the examples said.
    """

    ids: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_] | None = None
    sizes: npt.NDArray[np.int64] | None = None


class Example(NamedTuple):
    """One record. ``size``: bytes of its text, or characters where ``encode`` tells the bytes; ``consumed``: bytes of
    its piece so far; ``is_empty``: nothing to learn."""

    content: Any
    size: int
    consumed: int
    is_empty: bool


class ExampleReader(Protocol):
    """What a format knows to do. ``documents`` is how many documents of the cache an example becomes."""

    has_mask: bool
    documents: int

    def read(self, piece: Piece, bad: BadRecords) -> Iterator[Example]: ...

    def key(self, content: Any) -> str:
        """What decides whether an example is held out: its content, and nothing else."""
        ...

    def encode(self, contents: Sequence[Any]) -> Encoded: ...

    def encode_long(self, content: Any) -> Iterator[npt.NDArray[np.uint32]] | None:
        """The ids of one example piece by piece; ``None``: this format does it only as a whole."""
        ...


def utf8_bytes(text: str) -> int:
    """Bytes of ``text`` as UTF-8."""
    if text.isascii():
        return len(text)
    # A large text is not to be in memory twice.
    return sum(len(text[start : start + _AT_ONCE].encode()) for start in range(0, len(text), _AT_ONCE))


@final
class TextReader:
    """Plain text."""

    has_mask = False
    documents = 1

    def __init__(self, engine: Engine, framing: Framing, text_key: str) -> None:
        self._engine, self._framing, self._text_key = engine, framing, text_key

    def read(self, piece: Piece, bad: BadRecords) -> Iterator[Example]:
        for text, consumed in read_documents(piece, self._text_key, bad):
            yield Example(text, len(text), consumed, not text)

    def key(self, content: str) -> str:
        return content

    def encode(self, contents: Sequence[str]) -> Encoded:
        ids, lengths = framed(*self._engine.encode(contents), self._framing)
        # Only now: the engine has asked for the UTF-8 of each, which Python keeps, so that it need not be made again.
        return Encoded(ids, lengths, sizes=np.array([utf8_bytes(text) for text in contents], np.int64))

    def encode_long(self, content: str) -> Iterator[npt.NDArray[np.uint32]]:
        yield np.array(self._framing.prefix, np.uint32)
        yield from self._engine.encode_long(content)
        yield np.array(self._framing.suffix, np.uint32)


@final
class PrebuiltReader:
    """Ids that are there already."""

    documents = 1

    def __init__(self, format: PrebuiltFormat, vocab_size: int) -> None:
        mask = () if format.mask_key is None else (format.mask_key,)
        self._keys: tuple[str, ...] = (format.ids_key, *mask)
        self.has_mask = format.mask_key is not None
        self._vocab_size = vocab_size

    def read(self, piece: Piece, bad: BadRecords) -> Iterator[Example]:
        for (content,), consumed in read_rows(piece, self._keys, self._fit, bad):
            yield Example(content, 0, consumed, not len(content[0]))

    def key(self, content: Any) -> str:
        return hashlib.sha256(content[0].tobytes()).hexdigest()

    def encode_long(self, content: Any) -> None:
        del content

    def encode(self, contents: Sequence[Any]) -> Encoded:
        ids = np.concatenate([ids for ids, _ in contents]) if contents else np.zeros(0, np.uint32)
        lengths = np.array([len(ids) for ids, _ in contents], np.int64)
        mask = np.concatenate([mask for _, mask in contents]) if contents and self.has_mask else None
        return Encoded(ids, lengths, mask if self.has_mask else None)

    def _fit(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        ids = _whole_numbers(values[0], self._keys[0])
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._vocab_size:
            wrong = int(ids.max()) if int(ids.max()) >= self._vocab_size else int(ids.min())
            raise Unfit("id outside the vocabulary", f"ids from 0 to {self._vocab_size - 1}, found {wrong}")
        mask = None
        if self.has_mask:
            mask = _whole_numbers(values[1], self._keys[1], "iub")
            if len(mask) and not np.isin(mask, (0, 1)).all():
                raise Unfit("mask of other values", f"0 and 1, or truth values, under {self._keys[1]!r}")
            if len(mask) != len(ids):
                raise Unfit("mask of another length", f"{self._keys[1]!r} as long as {self._keys[0]!r}")
            mask = mask != 0
        return ((ids.astype(np.uint32), mask),)


def _whole_numbers(value: Any, key: str, kinds: str = "iu") -> npt.NDArray[Any]:
    if value is ABSENT:
        raise Unfit("missing key", f"a list of whole numbers under {key!r}")
    if isinstance(value, list) and not value:
        return np.zeros(0, np.int64)
    try:
        found = np.asarray(value) if isinstance(value, list) else np.zeros(0, np.object_)
    except (ValueError, OverflowError):  # lists of different lengths, numbers of no type
        found = np.zeros(0, np.object_)
    if found.ndim != 1 or found.dtype.kind not in kinds:
        raise Unfit("wrong type", f"a list of whole numbers under {key!r}")
    return found


@final
class ChatReader:
    """Messages, written out by the chat template."""

    has_mask = True
    documents = 1

    def __init__(self, format: ChatFormat, chat: ChatEncoder) -> None:
        self._key, self._chat = format.messages_key, chat

    def read(self, piece: Piece, bad: BadRecords) -> Iterator[Example]:
        for (rendered,), consumed in read_rows(piece, (self._key,), self._fit, bad):
            yield Example(rendered, rendered.size, consumed, not rendered.size)

    def key(self, content: Any) -> str:
        return content.key

    def encode_long(self, content: Any) -> None:
        del content

    def encode(self, contents: Sequence[Any]) -> Encoded:
        return Encoded(*self._chat.encode(contents))

    def _fit(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._chat.render(values[0], self._key),)
