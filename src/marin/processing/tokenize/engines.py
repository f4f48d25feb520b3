"""Libraries that turn text into ids. Each gives exactly the ids of the reference, Hugging Face ``tokenizers``.

An engine adds nothing and leaves nothing out: what surrounds a document is added by ``encoder``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from marin.errors import ConfigurationError
from marin.processing.tokenize.cutting import CUT_CHARACTERS, Outline, cut, may_be_cut, read_outline

FlatIds = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]
"""The ids of all documents one after the other, and how many each has."""

# Read by the thread pools of the two libraries when they start. One thread a process: the work is spread over
# processes, and the fast engine becomes slower with more.
for _variable in ("RAYON_NUM_THREADS", "FASTOKENS_BPE_THREADS"):
    os.environ.setdefault(_variable, "1")


class Engine(Protocol):
    """Turns texts into ids. ``name`` is the library and its version, as records keep it."""

    @property
    def name(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> FlatIds: ...

    def encode_long(self, text: str) -> Iterator[npt.NDArray[np.uint32]]:
        """The ids of one text, piece by piece, in the memory of a piece where it may be cut."""
        ...


class EngineRefusal(Exception):  # no error of the user's: another engine is taken
    """An engine can't run this tokenizer. The text says why."""


@final
class ByteEngine:
    """Ids 0 to 255 are the bytes of UTF-8."""

    name = "marin bytes 1"

    def encode(self, texts: Sequence[str]) -> FlatIds:
        data = [text.encode() for text in texts]
        ids = np.frombuffer(b"".join(data), np.uint8).astype(np.uint32)
        return ids, np.array([len(each) for each in data], np.int64)

    def encode_long(self, text: str) -> Iterator[npt.NDArray[np.uint32]]:
        for start in range(0, len(text), CUT_CHARACTERS):
            yield self.encode([text[start : start + CUT_CHARACTERS]])[0]


@final
class ReferenceEngine:
    """A ``tokenizer.json``, run by Hugging Face ``tokenizers``."""

    def __init__(self, data: bytes, *, label: str, parse_special: bool = False) -> None:
        """``parse_special``: special strings in a text are special tokens; otherwise they are ordinary text."""
        import tokenizers  # noqa: PLC0415  # takes long, and the workers of the fast engine do without

        try:
            self.tokenizer = tokenizers.Tokenizer.from_str(data.decode())
        except Exception as fault:  # the library raises plain Exception
            raise ConfigurationError(f"tokenizer {label} is not a tokenizer.json that can be read: {fault}") from fault
        self.name = f"tokenizers {tokenizers.__version__}"
        self.parse_special = parse_special
        self.why: str | None = None
        """Why it stands in for a faster one that was asked for."""
        # What a file may carry over from the use it was saved in, and what would change or cut a document.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = not parse_special
        if getattr(self.tokenizer.model, "dropout", None):
            self.tokenizer.model.dropout = None
        self._cuts = may_be_cut(data)

    def encode(self, texts: Sequence[str]) -> FlatIds:
        return _in_pieces(texts, self._encode, cuts=self._cuts)

    def encode_long(self, text: str) -> Iterator[npt.NDArray[np.uint32]]:
        return _long(text, self._encode, cuts=self._cuts)

    def _encode(self, texts: Sequence[str]) -> FlatIds:
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        ids = [np.array(encoding.ids, np.uint32) for encoding in encodings]
        lengths = np.array([len(each) for each in ids], np.int64)
        return np.concatenate(ids) if ids else np.zeros(0, np.uint32), lengths


@final
class FastEngine:
    """The same by ``fastokens``, forty times as fast. For use where ``gate`` has seen that it gives the same ids."""

    def __init__(self, data: bytes, *, parse_special: bool = False) -> None:
        """Raises ``EngineRefusal`` for a tokenizer that it can't run."""
        try:
            import fastokens  # noqa: PLC0415  # may be missing
        except ImportError as fault:
            raise EngineRefusal(f"fastokens can't be imported ({fault})") from fault
        outline = read_outline(data)
        if outline.pre_tokenizer is None:
            raise EngineRefusal("fastokens gives other ids for a tokenizer without a pre-tokenizer")
        try:
            self._tokenizer: Any = fastokens.Tokenizer.from_json_str(_without_past_use(data, outline).decode())
        except Exception as fault:  # the library raises plain Exception
            raise EngineRefusal(f"fastokens can't run it ({fault})") from fault
        self.name = f"fastokens {metadata.version('fastokens')}"
        self.parse_special = parse_special
        self._cuts = may_be_cut(data)

    def encode(self, texts: Sequence[str]) -> FlatIds:
        return _in_pieces(texts, self._encode, cuts=self._cuts)

    def encode_long(self, text: str) -> Iterator[npt.NDArray[np.uint32]]:
        return _long(text, self._encode, cuts=self._cuts)

    def _encode(self, texts: Sequence[str]) -> FlatIds:
        ids, offsets = self._tokenizer.encode_batch_flat(
            texts, add_special_tokens=False, split_special_tokens=not self.parse_special
        )
        bounds = np.frombuffer(offsets, np.uint64).astype(np.int64)
        return np.frombuffer(ids, np.uint32), np.diff(bounds)


def _without_past_use(data: bytes, outline: Outline) -> bytes:
    if outline.truncation is None and outline.padding is None and not outline.model.dropout:
        return data  # most: to take a large vocabulary apart takes long, and a lot of memory
    entries: dict[str, Any] = json.loads(data)
    model: dict[str, Any] = entries.get("model") or {}
    return json.dumps({**entries, "truncation": None, "padding": None, "model": {**model, "dropout": None}}).encode()


_Encode = Callable[[Sequence[str]], FlatIds]


def _in_pieces(texts: Sequence[str], encode: _Encode, *, cuts: bool) -> FlatIds:
    """What ``encode`` gives, long texts handed to it in pieces: libraries take memory and time out of proportion."""
    if not cuts or all(len(text) <= CUT_CHARACTERS for text in texts):
        return encode(texts)
    found, lengths = list[npt.NDArray[np.uint32]](), list[npt.NDArray[np.int64]]()
    for is_long, group in itertools.groupby(texts, key=lambda text: len(text) > CUT_CHARACTERS):
        for each in [[text] for text in group] if is_long else [list(group)]:
            if is_long:
                pieces = list(_long(each[0], encode, cuts=True))
                found += pieces
                lengths.append(np.array([sum(map(len, pieces))], np.int64))
            else:
                ids, counts = encode(each)
                found.append(ids)
                lengths.append(counts)
    return np.concatenate(found), np.concatenate(lengths)


def _long(text: str, encode: _Encode, *, cuts: bool) -> Iterator[npt.NDArray[np.uint32]]:
    if not cuts:
        yield encode([text])[0]
        return
    for piece in cut(text):
        yield encode([piece])[0]
