"""Look into a token cache: its tokens as an array, documents as text, what is learned of them, how long they are."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from marin.errors import ConfigurationError, TokenizerMismatchError
from marin.processing.tokenize.encoder import Encoder, EncodingRules, load_encoder
from marin.processing.tokenize.manifest import TOKENIZER_FILE, TRAIN
from marin.processing.tokenize.open_stream import open_stream
from marin.processing.tokenize.stream import Ids, Mask, TokenStream
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.processing.tokenize.tokenizers import TokenizerSource

_AT_ONCE = 1 << 22
_SAMPLES, _SAMPLE_CHARACTERS, _BAR = 3, 400, 40


@final
class TokenArray:
    """All tokens of a split, one after the other: an index or a slice reads no more than what it names."""

    ndim = 1

    def __init__(self, stream: TokenStream) -> None:
        self._stream = stream

    def __len__(self) -> int:
        return self._stream.num_tokens

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._stream.dtype

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, wanted: int | np.integer[Any] | slice | Sequence[int]) -> Any:
        """The id at an index, or those of a slice or of several indices: a view of the mapped file where it can be."""
        if not isinstance(wanted, int | np.integer | slice):
            return np.array([self[int(index)] for index in np.asarray(wanted).ravel()], self.dtype)
        if isinstance(wanted, slice):
            start, stop, step = wanted.indices(len(self))
            if step == 1:
                return self._stream.tokens(start, max(0, stop - start))
            return np.array([self[index] for index in range(start, stop, step)], self.dtype)
        index = int(wanted) + len(self) if wanted < 0 else int(wanted)
        if not 0 <= index < len(self):
            raise IndexError(f"token {wanted} of {len(self):,}")
        return self._stream.tokens(index, 1)[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        del copy  # what lies in several pieces is always copied
        found = self._stream.tokens(0, len(self))
        return found if dtype is None else found.astype(dtype)


@dataclass(frozen=True, kw_only=True)
class SampledDocument:
    """One document: its number in the split, its ids, its text, and which of its tokens are learned (``None``: all)."""

    number: int
    ids: Ids
    text: str
    mask: Mask | None

    @property
    def learned(self) -> float:
        """The fraction of its tokens that are learned."""
        return 1.0 if self.mask is None or not len(self.mask) else float(self.mask.mean())


@dataclass(frozen=True, kw_only=True)
class LengthStatistics:
    """Lengths of documents in tokens. ``histogram``: how many have up to 2^k tokens and more than 2^(k-1), by k."""

    documents: int
    tokens: int
    shortest: int
    median: float
    mean: float
    longest: int
    histogram: tuple[int, ...]


def encoder_of(cache: TokenizedCache) -> Encoder:
    """The tokenizer that made ``cache``. Raises ``TokenizerMismatchError`` if what lies there behaves differently."""
    known = cache.tokenizer
    if known.kind == "bytes":
        source = TokenizerSource(kind="bytes", location=known.location)
    elif os.path.isfile(beside := os.path.join(cache.path, TOKENIZER_FILE)):
        source = TokenizerSource(kind="file", location=beside)
    else:
        source = TokenizerSource(kind=known.kind, location=known.location, revision=known.revision)
    eos_token = None if known.kind == "bytes" else known.eos_token
    encoder = load_encoder(source, rules=EncodingRules(special_tokens="none", eos_token=eos_token))
    if not encoder.identity.agrees_with(known):
        raise TokenizerMismatchError(
            f"{cache.path} was made by tokenizer {known.location}; {source.location} does not behave as it did then, "
            "so its texts would be others: bring that tokenizer back, or tokenize again"
        )
    return encoder


def decode(cache: TokenizedCache, ids: Any) -> str:
    """The text of ``ids``: an array, a list, or one id."""
    return encoder_of(cache).decode(np.atleast_1d(np.asarray(ids, np.int64)))


def token_array(cache: TokenizedCache, split: str = TRAIN) -> TokenArray:
    """The tokens of a split."""
    return TokenArray(open_stream(cache.path, split, cache.layout))


def sample(cache: TokenizedCache, count: int, *, split: str = TRAIN, seed: int = 0) -> list[SampledDocument]:
    """``count`` documents of a split, or all if there are fewer, chosen by ``seed``, in the order in which they lie."""
    if type(count) is not int or count < 0:
        raise ConfigurationError(f"sample({count!r}): give how many documents, from 0 on")
    stream, encoder = open_stream(cache.path, split, cache.layout), encoder_of(cache)
    documents = sum(len(ends) for ends in _ends(stream))  # empty ones, which other tools keep, have no end of their own
    chosen = sorted(random.Random(seed).sample(range(documents), min(count, documents)))
    found = list[SampledDocument]()
    for number, (start, end) in zip(chosen, _bounds(stream, chosen), strict=True):
        ids = stream.tokens(start, end - start)
        mask = stream.loss_mask(start, end - start)
        found.append(SampledDocument(number=number, ids=ids, text=encoder.decode(ids), mask=mask))
    return found


def length_statistics(cache: TokenizedCache, split: str = TRAIN) -> LengthStatistics:
    """How long the documents of a split are."""
    stream = open_stream(cache.path, split, cache.layout)
    lengths = np.diff(np.concatenate([np.zeros(1, np.int64), *_ends(stream)]))
    if not len(lengths):
        return LengthStatistics(documents=0, tokens=0, shortest=0, median=0, mean=0, longest=0, histogram=())
    classes = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    return LengthStatistics(
        documents=len(lengths),
        tokens=stream.num_tokens,
        shortest=int(lengths.min()),
        median=float(np.median(lengths)),
        mean=float(lengths.mean()),
        longest=int(lengths.max()),
        histogram=tuple(np.bincount(classes).tolist()),
    )


def facts(cache: TokenizedCache) -> Iterator[tuple[str, Any]]:
    """What people want to see of a cache: sizes, a histogram of lengths, and some documents as text."""
    for split, summary in cache.splits.items():
        learned = summary.learned_tokens
        masked = "" if learned is None else f", {learned:,} of them learned"
        bad = f", {summary.empty_documents:,} empty ones left out" if summary.empty_documents else ""
        documents = f"{summary.documents:,} document{'' if summary.documents == 1 else 's'}"
        yield split, f"{summary.tokens:,} tokens{masked} in {documents}{bad}"
        yield f"{split} lengths", _histogram(length_statistics(cache, split))
    encoder = encoder_of(cache)
    for document in sample(cache, _SAMPLES):
        yield f"document {document.number:,}", _shown(document, encoder)


def _shown(document: SampledDocument, encoder: Encoder) -> str:
    share = "" if document.mask is None else f" ({document.learned:.0%} learned, in ⟦⟧)"
    text = _marked(document, encoder)[:_SAMPLE_CHARACTERS]
    more = "…" if len(text) == _SAMPLE_CHARACTERS else ""
    printable = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return f"{len(document.ids):,} tokens{share}: {printable}{more}"


def _marked(document: SampledDocument, encoder: Encoder) -> str:
    """The text, what is learned of it in brackets."""
    if document.mask is None:
        return document.text
    changes = np.flatnonzero(np.diff(document.mask)) + 1
    runs = zip(np.split(document.ids, changes), np.split(document.mask, changes), strict=True)
    return "".join(f"⟦{encoder.decode(ids)}⟧" if mask[0] else encoder.decode(ids) for ids, mask in runs if len(ids))


def _histogram(lengths: LengthStatistics) -> list[str]:
    lines = [
        f"{lengths.shortest:,} to {lengths.longest:,} tokens, median {lengths.median:,.0f}, mean {lengths.mean:,.0f}"
    ]
    most = max(lengths.histogram, default=0)
    first = next((place for place, count in enumerate(lengths.histogram) if count), 0)
    for place, count in enumerate(lengths.histogram):
        if place >= first:
            bar = "█" * round(_BAR * count / most)
            lines.append(f"up to {1 << place:>10,} {count:>12,} {bar}".rstrip())
    return lines


def _ends(stream: TokenStream) -> Iterator[npt.NDArray[np.int64]]:
    for start in range(0, stream.num_tokens, _AT_ONCE):
        yield stream.document_ends(start, min(_AT_ONCE, stream.num_tokens - start))


def _bounds(stream: TokenStream, wanted: list[int]) -> Iterator[tuple[int, int]]:
    """Where the documents with these ascending numbers begin and end."""
    before, last_end, place = 0, 0, 0
    for ends in _ends(stream):
        while place < len(wanted) and wanted[place] < before + len(ends):
            within = wanted[place] - before
            yield (int(ends[within - 1]) if within else last_end), int(ends[within])
            place += 1
        before += len(ends)
        last_end = int(ends[-1]) if len(ends) else last_end
