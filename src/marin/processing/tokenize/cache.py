"""Write and read the files of a token cache.

A shard is an Arrow IPC file with one column, ``input_ids``: a large list of uint16 or uint32. That layout *is* a flat
buffer of tokens and int64 document offsets, so that a memory-mapped file gives numpy arrays without a copy, documents
need no scan for a separator, and other tools can read it.
"""

from __future__ import annotations

import bisect
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from marin.errors import ConfigurationError, DataError
from marin.processing.durable import commit_file
from marin.processing.tokenize.manifest import (
    TRAIN,
    Manifest,
    ShardRecord,
    TokenizerIdentity,
    TokenType,
    read_manifest,
)
from marin.storage.faults import translated_faults

COLUMN = "input_ids"
Ids: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Ints: TypeAlias = npt.NDArray[np.int64]


def token_type(vocab_size: int) -> TokenType:
    """The smallest type that holds every id below ``vocab_size``.

    >>> token_type(65_536), token_type(65_537)
    ('uint16', 'uint32')
    """
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


class ShardWriter:
    """Writes one shard, in record batches. The file appears under its name when ``close`` returns.

    The same calls with the same data write the same bytes.
    """

    def __init__(self, root: str, file: str, *, split: str, vocab_size: int, metadata: Mapping[str, str]) -> None:
        self._path = os.path.join(root, file)
        self._file, self._split, self._vocab_size = file, split, vocab_size
        self._dtype = np.dtype(token_type(vocab_size)).newbyteorder("<")
        values = pa.field("item", pa.from_numpy_dtype(self._dtype.newbyteorder("=")), nullable=False)
        column = pa.field(COLUMN, pa.large_list(values), nullable=False)
        self._schema = pa.schema([column], metadata=dict(metadata))
        self._values = values
        self._tokens_digest, self._lengths_digest = hashlib.sha256(), hashlib.sha256()
        self._tokens = self._documents = self._text_bytes = self._empty = 0
        self._scratch = f"{self._path}.tmp"
        with translated_faults(self._scratch, writing=True):
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._writer = pa.ipc.new_file(self._scratch, self._schema)

    def write(self, ids: Ids, lengths: Ints, *, text_bytes: int, empty: int = 0) -> None:
        """Append documents: ``ids`` one after the other, ``lengths`` in tokens, as one record batch.

        Raises ``DataError`` for an id that the vocabulary does not have.
        """
        self._empty += empty
        if not len(lengths):
            return
        if len(ids) and int(ids.max()) >= self._vocab_size:
            raise DataError(
                f"{self._file}: token id {int(ids.max())} is not below the vocabulary size {self._vocab_size:,}; "
                "the tokenizer's file and its added tokens do not fit together"
            )
        tokens = np.ascontiguousarray(ids, dtype=self._dtype)
        offsets = np.zeros(len(lengths) + 1, dtype="<i8")
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] != len(tokens):
            raise DataError(f"{self._file}: lengths add up to {offsets[-1]}, but there are {len(tokens)} tokens")
        column = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens), type=self._schema.field(0).type)
        with translated_faults(self._scratch, writing=True):
            self._writer.write_batch(pa.record_batch([column], schema=self._schema))
        self._tokens_digest.update(tokens.data)
        self._lengths_digest.update(np.ascontiguousarray(lengths, dtype="<i8").data)
        self._tokens += len(tokens)
        self._documents += len(lengths)
        self._text_bytes += text_bytes

    def close(self) -> ShardRecord:
        """Finish the file, make it durable, and say what is in it."""
        with translated_faults(self._scratch, writing=True):
            self._writer.close()
            ranges = tuple(_token_ranges(self._scratch))
            size = os.stat(self._scratch).st_size
            commit_file(self._scratch, self._path)
        return ShardRecord(
            split=self._split,
            file=self._file,
            bytes=size,
            tokens=self._tokens,
            documents=self._documents,
            empty_documents=self._empty,
            text_bytes=self._text_bytes,
            tokens_sha256=self._tokens_digest.hexdigest(),
            lengths_sha256=self._lengths_digest.hexdigest(),
            token_ranges=ranges,
        )


class TokenCache:
    """One split of a token cache, mapped into memory: a flat stream of tokens with document boundaries.

    Opening reads the manifest and the footers. Arrays are views of the mapped files wherever they do not cross a
    record batch, and are read-only. Safe to use from several threads.
    """

    def __init__(self, path: str, split: str, manifest: Manifest, chunks: list[Ids], offsets: list[Ints]) -> None:
        self.path, self.split, self.manifest = path, split, manifest
        self._chunks, self._offsets = chunks, offsets
        self._starts = [0, *np.cumsum([len(chunk) for chunk in chunks], dtype=np.int64).tolist()]
        self._doc_ends: Ints | None = None

    @classmethod
    def open(cls, path: str, split: str = TRAIN) -> Self:
        """Open a split. Raises ``DataError`` if a file is absent, damaged or not as the manifest says.

        A split that the cache does not have is a ``ConfigurationError`` that lists those it has.
        """
        manifest = read_manifest(path)
        if split not in manifest.splits:
            has = ", ".join(manifest.splits) or "none"
            raise ConfigurationError(f"the token cache {path} has no split {split!r}; it has: {has}")
        chunks, offsets = list[Ids](), list[Ints]()
        for shard in manifest.shards(split):
            opened = _read_shard(os.path.join(path, shard.file), shard, manifest.dtype)
            for tokens, bounds in opened:
                chunks.append(tokens)
                offsets.append(bounds)
        return cls(path, split, manifest, chunks, offsets)

    @property
    def num_tokens(self) -> int:
        """Tokens of the split, the end-of-text token of each document included."""
        return self._starts[-1]

    def __len__(self) -> int:
        return self.num_tokens

    @property
    def num_documents(self) -> int:
        return sum(len(bounds) - 1 for bounds in self._offsets)

    @property
    def text_bytes(self) -> int:
        """Bytes of UTF-8 text that the split was made from."""
        return sum(shard.text_bytes for shard in self.manifest.shards(self.split))

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.manifest.dtype)

    @property
    def tokenizer(self) -> TokenizerIdentity | None:
        return self.manifest.tokenizer

    @property
    def doc_ends(self) -> Ints:
        """Position just behind each document in the flat stream, ascending; int64, one per document."""
        if self._doc_ends is None:
            ends = [bounds[1:] + start for bounds, start in zip(self._offsets, self._starts, strict=False)]
            self._doc_ends = np.concatenate(ends) if ends else np.zeros(0, np.int64)
        return self._doc_ends

    def tokens(self, start: int, count: int) -> Ids:
        """``count`` tokens of the flat stream from ``start``. Raises ``IndexError`` outside it."""
        if start < 0 or count < 0 or start + count > self.num_tokens:
            raise IndexError(f"tokens {start} to {start + count} of a split of {self.num_tokens}: {self.path}")
        index = bisect.bisect_right(self._starts, start) - 1
        pieces = list[Ids]()
        while count:
            offset = start - self._starts[index]
            piece = self._chunks[index][offset : offset + count]
            pieces.append(piece)
            start, count, index = start + len(piece), count - len(piece), index + 1
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)

    def windows(self, starts: npt.NDArray[np.integer[Any]], length: int) -> Ids:
        """Windows of ``length`` tokens at ``starts``: a new array of shape (len(starts), length)."""
        batch = np.empty((len(starts), length), self.dtype)
        for row, start in enumerate(starts.tolist()):
            batch[row] = self.tokens(start, length)
        return batch

    def document(self, index: int) -> Ids:
        """The tokens of one document, its end-of-text token included."""
        start = int(self.doc_ends[index - 1]) if index else 0
        return self.tokens(start, int(self.doc_ends[index]) - start)


def check_cache(path: str) -> Manifest:
    """Read a cache in full, as the trainer would, and compare it with its manifest.

    Raises ``DataError`` for content that differs from its digest, ids outside the vocabulary or lengths that do not
    add up.
    """
    manifest = read_manifest(path)
    for split in manifest.splits:
        for shard in manifest.shards(split):
            _check_shard(os.path.join(path, shard.file), shard, manifest)
    return manifest


def _check_shard(file: str, shard: ShardRecord, manifest: Manifest) -> None:
    tokens_digest, lengths_digest = hashlib.sha256(), hashlib.sha256()
    limit = manifest.tokenizer.vocab_size if manifest.tokenizer else 1 << 32
    for tokens, bounds in _read_shard(file, shard, manifest.dtype):
        tokens_digest.update(np.ascontiguousarray(tokens).data)
        lengths_digest.update(np.ascontiguousarray(np.diff(bounds)).data)
        if len(tokens) and int(tokens.max()) >= limit:
            raise DataError(f"{file}: token id {int(tokens.max())} is not below the vocabulary size {limit:,}")
    if (tokens_digest.hexdigest(), lengths_digest.hexdigest()) != (shard.tokens_sha256, shard.lengths_sha256):
        raise DataError(
            f"{file} is damaged: its content is not what its manifest says; build it again, or copy it anew"
        )


def _read_shard(file: str, shard: ShardRecord, dtype: TokenType) -> list[tuple[Ids, Ints]]:
    try:
        batches = list(_batches(file))
    except FileNotFoundError:
        raise DataError(f"{file} is missing from the token cache: build it again, or copy the cache anew") from None
    except (pa.ArrowInvalid, OSError, KeyError) as fault:
        raise DataError(f"{file} can't be read ({fault}): build it again, or copy the cache anew") from fault
    found = (sum(len(bounds) - 1 for _, bounds in batches), sum(len(tokens) for tokens, _ in batches))
    if found != (shard.documents, shard.tokens) or any(tokens.dtype != np.dtype(dtype) for tokens, _ in batches):
        raise DataError(
            f"{file} holds {found[0]:,} documents and {found[1]:,} tokens, its manifest says {shard.documents:,} "
            f"and {shard.tokens:,} of {dtype}: build it again, or copy the cache anew"
        )
    return batches


def _batches(file: str) -> Iterator[tuple[Ids, Ints]]:
    reader = pa.ipc.open_file(pa.memory_map(file))
    for index in range(reader.num_record_batches):
        column: Any = reader.get_batch(index).column(COLUMN)
        yield column.values.to_numpy(zero_copy_only=True), column.offsets.to_numpy(zero_copy_only=True)


def _token_ranges(file: str) -> Iterator[tuple[int, int]]:
    source = pa.memory_map(file)
    base = source.read_buffer(source.size()).address
    source.seek(0)
    reader = pa.ipc.open_file(source)
    for index in range(reader.num_record_batches):
        values: Any = reader.get_batch(index).column(COLUMN).values
        yield values.buffers()[1].address - base, len(values)
