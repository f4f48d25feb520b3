"""Write and read the files of a token cache.

A shard is an Arrow IPC file with one column, ``input_ids``: a large list of uint16 or uint32. That layout *is* a flat
buffer of tokens and int64 document offsets, so that a memory-mapped file gives numpy arrays without a copy, documents
need no scan for a separator, and other tools can read it.

Over 300 lines: who writes, reads and checks a shard must agree on each byte of it.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from marin.errors import ConfigurationError, DataError
from marin.execution.progress import report
from marin.processing.durable import commit_file
from marin.processing.tokenize.manifest import (
    TRAIN,
    Manifest,
    ShardRecord,
    TokenizerIdentity,
    TokenType,
    read_manifest,
)
from marin.processing.tokenize.remote_chunks import is_remote, remote_chunks
from marin.processing.tokenize.stream import Ids, Ints, Mask
from marin.storage.faults import translated_faults

COLUMN = "input_ids"
MASK_COLUMN = "loss_mask"

ByteRange: TypeAlias = tuple[int, int]
"""Where a buffer begins in its file, in bytes, and how many values it has."""


class Chunk(NamedTuple):
    """A record batch: its tokens, where its documents begin and the last one ends, and what is learned."""

    tokens: Ids
    bounds: Ints
    mask: npt.NDArray[np.uint8] | None


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

    def __init__(
        self,
        root: str,
        file: str,
        *,
        split: str,
        vocab_size: int,
        metadata: Mapping[str, str],
        has_mask: bool = False,
    ) -> None:
        """``has_mask``: every batch comes with which of its tokens are learned."""
        self._path = os.path.join(root, file)
        self._file, self._split, self._vocab_size = file, split, vocab_size
        self._dtype = np.dtype(token_type(vocab_size)).newbyteorder("<")
        fields = [_column(COLUMN, pa.from_numpy_dtype(self._dtype.newbyteorder("=")))]
        if has_mask:
            fields.append(_column(MASK_COLUMN, pa.uint8()))
        self._schema = pa.schema(fields, metadata=dict(metadata))
        self._tokens_digest, self._lengths_digest = hashlib.sha256(), hashlib.sha256()
        self._mask_digest = hashlib.sha256() if has_mask else None
        self._tokens = self._documents = self._text_bytes = self._empty = self._learned = 0
        self._scratch = f"{self._path}.tmp"
        with translated_faults(self._scratch, writing=True):
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._writer = pa.ipc.new_file(self._scratch, self._schema)

    def write(self, ids: Ids, lengths: Ints, *, text_bytes: int, empty: int = 0, mask: Mask | None = None) -> None:
        """Append documents: ``ids`` one after the other, ``lengths`` in tokens, as one record batch.

        Raises ``DataError`` for an id that the vocabulary does not have.
        """
        self._empty += empty
        if not len(lengths):
            return
        self._check_ids(ids)
        tokens = np.ascontiguousarray(ids, dtype=self._dtype)
        offsets = np.zeros(len(lengths) + 1, dtype="<i8")
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] != len(tokens):
            raise DataError(f"{self._file}: lengths add up to {offsets[-1]}, but there are {len(tokens)} tokens")
        columns = [_lists(offsets, tokens, self._schema.field(0).type)]
        if self._mask_digest is not None:
            assert mask is not None
            learned = np.ascontiguousarray(mask, dtype=np.uint8)
            columns.append(_lists(offsets, learned, self._schema.field(1).type))
            self._mask_digest.update(learned.data)
            self._learned += int(learned.sum())
        with translated_faults(self._scratch, writing=True):
            self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        self._tokens_digest.update(tokens.data)
        self._lengths_digest.update(np.ascontiguousarray(lengths, dtype="<i8").data)
        self._tokens += len(tokens)
        self._documents += len(lengths)
        self._text_bytes += text_bytes

    def write_long(self, pieces: Iterable[npt.NDArray[np.uint32]], *, text_bytes: int) -> int:
        """Append one document, in the memory of a piece; how many tokens it has. For shards without a mask."""
        spilled = f"{self._path}.ids.tmp"
        try:
            with translated_faults(spilled, writing=True), open(spilled, "wb") as file:
                for piece in pieces:
                    self._check_ids(piece)
                    file.write(np.ascontiguousarray(piece, dtype=self._dtype).data)
                count = file.tell() // self._dtype.itemsize
            if count:
                ids = np.asarray(np.memmap(spilled, self._dtype, "r"))
                self.write(ids, np.array([count], np.int64), text_bytes=text_bytes)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(spilled)
        return count

    def close(self) -> ShardRecord:
        """Finish the file, make it durable, and say what is in it."""
        with translated_faults(self._scratch, writing=True):
            self._writer.close()
            ranges = list(_ranges(self._scratch))
            size = os.stat(self._scratch).st_size
            commit_file(self._scratch, self._path)
        has_mask = self._mask_digest is not None
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
            token_ranges=tuple(tokens for tokens, _, _ in ranges),
            offset_ranges=tuple(offsets for _, offsets, _ in ranges),
            mask_ranges=tuple(mask for _, _, mask in ranges if mask is not None),
            learned_tokens=self._learned if has_mask else None,
            mask_sha256=self._mask_digest.hexdigest() if self._mask_digest is not None else "",
        )

    def _check_ids(self, ids: Ids) -> None:
        if len(ids) and int(ids.max()) >= self._vocab_size:
            raise DataError(
                f"{self._file}: token id {int(ids.max())} is not below the vocabulary size {self._vocab_size:,}; "
                "the tokenizer's file and its added tokens do not fit together"
            )

    def discard(self) -> None:
        """Leave nothing behind of a shard that is not finished."""
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._scratch)


def _column(name: str, values: Any) -> Any:
    return pa.field(name, pa.large_list(pa.field("item", values, nullable=False)), nullable=False)


def _lists(offsets: Any, values: Any, type: Any) -> Any:
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values), type=type)


class TokenCache:
    """One split of a token cache, mapped into memory: a flat stream of tokens with document boundaries.

    Opening reads the manifest and the footers. Arrays are views of the mapped files wherever they do not cross a
    record batch, and are read-only. Safe to use from several threads.
    """

    def __init__(self, path: str, split: str, manifest: Manifest, chunks: Sequence[Chunk]) -> None:
        self.path, self.split, self.manifest = path, split, manifest
        self.chunks = chunks
        self._starts = [0, *np.cumsum([len(chunk.tokens) for chunk in chunks], dtype=np.int64).tolist()]
        self._begins = np.array(self._starts[:-1], np.int64)
        self._doc_ends: Ints | None = None

    @classmethod
    def open(cls, path: str, split: str = TRAIN) -> Self:
        """Open a split. Raises ``DataError`` if a file is absent, damaged or not as the manifest says.

        ``path`` may be a URL: then only what is asked for is read, by byte ranges. A split that the cache does not
        have is a ``ConfigurationError`` that lists those it has.
        """
        manifest = read_manifest(path)
        if split not in manifest.splits:
            has = ", ".join(manifest.splits) or "none"
            raise ConfigurationError(f"the token cache {path} has no split {split!r}; it has: {has}")
        chunks = list[Chunk]()
        for shard in manifest.shards(split):
            if is_remote(path):
                chunks += [Chunk(*parts) for parts in remote_chunks(path, shard, manifest.dtype)]
            else:
                chunks += _read_shard(os.path.join(path, shard.file), shard, manifest.dtype)
        return cls(path, split, manifest, chunks)

    @property
    def num_tokens(self) -> int:
        """Tokens of the split, the end-of-text token of each document included."""
        return self._starts[-1]

    def __len__(self) -> int:
        return self.num_tokens

    @property
    def num_documents(self) -> int:
        return sum(len(chunk.bounds) - 1 for chunk in self.chunks)

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
            ends = [chunk.bounds[1:] + start for chunk, start in zip(self.chunks, self._starts, strict=False)]
            self._doc_ends = np.concatenate(ends) if ends else np.zeros(0, np.int64)
        return self._doc_ends

    def tokens(self, start: int, count: int) -> Ids:
        """``count`` tokens of the flat stream from ``start``. Raises ``IndexError`` outside it."""
        pieces = [self.chunks[index].tokens[first:last] for index, first, last in self._pieces(start, count)]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)

    def windows(self, starts: npt.NDArray[np.integer[Any]], length: int) -> Ids:
        """Windows of ``length`` tokens at ``starts``: a new array of shape (len(starts), length)."""
        batch = np.empty((len(starts), length), self.dtype)
        owners = np.maximum(np.searchsorted(self._begins, starts, side="right") - 1, 0)
        within = starts - self._begins[owners] if len(self._begins) else starts
        for row, (owner, first) in enumerate(zip(owners.tolist(), within.tolist(), strict=True)):
            tokens = self.chunks[owner].tokens if self.chunks else ()
            if first >= 0 and first + length <= len(tokens):
                batch[row] = tokens[first : first + length]
            else:
                batch[row] = self.tokens(int(starts[row]), length)
        return batch

    def document_ends(self, start: int, count: int) -> Ints:
        """Ascending positions just behind each document that ends in ``(start, start + count]``."""
        found = list[Ints]()
        for index, first, last in self._pieces(start, count):
            bounds = self.chunks[index].bounds[:]
            low, high = np.searchsorted(bounds[1:], (first, last), side="right")
            found.append(bounds[1 + low : 1 + high] + self._starts[index])
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def loss_mask(self, start: int, count: int) -> Mask | None:
        """Which of these tokens are learned; ``None``: all, as the cache has no mask."""
        if not self.chunks or self.chunks[0].mask is None:
            return None
        masks = [(self.chunks[index].mask, first, last) for index, first, last in self._pieces(start, count)]
        found = [mask[first:last].view(np.bool_) for mask, first, last in masks if mask is not None]
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def _pieces(self, start: int, count: int) -> Iterator[tuple[int, int, int]]:
        """The chunks that hold these tokens: of each its number, and its first and last position."""
        if start < 0 or count < 0 or start + count > self.num_tokens:
            raise IndexError(f"tokens {start} to {start + count} of a split of {self.num_tokens}: {self.path}")
        index = bisect.bisect_right(self._starts, start) - 1
        while count:
            offset = start - self._starts[index]
            taken = min(count, self._starts[index + 1] - start)
            if taken:
                yield index, offset, offset + taken
            start, count, index = start + taken, count - taken, index + 1

    def document(self, index: int) -> Ids:
        """The tokens of one document, its end-of-text token included."""
        start = int(self.doc_ends[index - 1]) if index else 0
        return self.tokens(start, int(self.doc_ends[index]) - start)


def check_readable(path: str) -> None:
    """As ``check_cache``, and tell how far it is."""
    manifest = read_manifest(path)
    shards = [shard for split in manifest.splits for shard in manifest.shards(split)]
    total, done = sum(shard.tokens for shard in shards), 0
    for shard in shards:
        check_shard(path, shard, _vocab_size(manifest), manifest.dtype)
        done += shard.tokens
        report(done / 1e6, total / 1e6, "M tokens", "looking through it")


def _vocab_size(manifest: Manifest) -> int:
    return manifest.tokenizer.vocab_size if manifest.tokenizer else 1 << (8 * np.dtype(manifest.dtype).itemsize)


def check_cache(path: str) -> Manifest:
    """Read a cache in full, as the trainer would, and compare it with its manifest.

    Raises ``DataError`` for content that differs from its digest, ids outside the vocabulary or lengths that do not
    add up.
    """
    manifest = read_manifest(path)
    for split in manifest.splits:
        for shard in manifest.shards(split):
            check_shard(path, shard, _vocab_size(manifest), manifest.dtype)
    return manifest


def check_shard(root: str, shard: ShardRecord, vocab_size: int, dtype: TokenType | None = None) -> None:
    """Read one shard of the cache at ``root`` in full. Raises as ``check_cache``."""
    dtype = dtype or token_type(vocab_size)
    file = os.path.join(root, shard.file)
    digests = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    for tokens, bounds, mask in _read_shard(file, shard, dtype):
        digests[0].update(np.ascontiguousarray(tokens).data)
        digests[1].update(np.ascontiguousarray(np.diff(bounds)).data)
        if mask is not None:
            digests[2].update(np.ascontiguousarray(mask).data)
        if len(tokens) and int(tokens.max()) >= vocab_size:
            raise DataError(f"{file}: token id {int(tokens.max())} is not below the vocabulary size {vocab_size:,}")
    expected = (shard.tokens_sha256, shard.lengths_sha256, shard.mask_sha256 or hashlib.sha256().hexdigest())
    if tuple(digest.hexdigest() for digest in digests) != expected:
        raise DataError(
            f"{file} is damaged: its content is not what its manifest says; build it again, or copy it anew"
        )


def _read_shard(file: str, shard: ShardRecord, dtype: TokenType) -> list[Chunk]:
    try:
        chunks = list(_chunks(file))
    except FileNotFoundError:
        raise DataError(f"{file} is missing from the token cache: build it again, or copy the cache anew") from None
    except (pa.ArrowInvalid, OSError, KeyError) as fault:
        raise DataError(f"{file} can't be read ({fault}): build it again, or copy the cache anew") from fault
    found = (sum(len(chunk.bounds) - 1 for chunk in chunks), sum(len(chunk.tokens) for chunk in chunks))
    if found != (shard.documents, shard.tokens) or any(chunk.tokens.dtype != np.dtype(dtype) for chunk in chunks):
        raise DataError(
            f"{file} holds {found[0]:,} documents and {found[1]:,} tokens, its manifest says {shard.documents:,} "
            f"and {shard.tokens:,} of {dtype}: build it again, or copy the cache anew"
        )
    return chunks


def _chunks(file: str) -> Iterator[Chunk]:
    reader = pa.ipc.open_file(pa.memory_map(file))
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index)
        column: Any = batch.column(COLUMN)
        mask: Any = batch.column(MASK_COLUMN) if MASK_COLUMN in batch.schema.names else None
        yield Chunk(
            tokens=column.values.to_numpy(zero_copy_only=True),
            bounds=column.offsets.to_numpy(zero_copy_only=True),
            mask=None if mask is None else mask.values.to_numpy(zero_copy_only=True),
        )


def _ranges(file: str) -> Iterator[tuple[ByteRange, ByteRange, ByteRange | None]]:
    """Of each record batch where its tokens, its offsets and its mask lie."""
    with open(file, "rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    source = pa.py_buffer(mapped)
    base = source.address
    reader = pa.ipc.open_file(source)
    for index in range(reader.num_record_batches):
        mapped.madvise(mmap.MADV_DONTNEED)  # what was mapped to be looked at need not count as memory of this process
        batch = reader.get_batch(index)
        column: Any = batch.column(COLUMN)
        tokens = (column.values.buffers()[1].address - base, len(column.values))
        offsets = (column.buffers()[1].address - base, len(column) + 1)
        mask = None
        if MASK_COLUMN in batch.schema.names:
            values: Any = batch.column(MASK_COLUMN).values
            mask = (values.buffers()[1].address - base, len(values))
        yield tokens, offsets, mask
