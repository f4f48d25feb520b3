"""Shards of a token cache that lies at a URL: read by byte ranges, nothing is copied as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from marin.errors import DataError
from marin.processing.tokenize.manifest import ShardRecord

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_remote(path: str) -> bool:
    """Whether ``path`` is a URL that this machine does not see as a file.

    >>> is_remote("s3://bucket/tokens"), is_remote("/data/tokens")
    (True, False)
    """
    return _SCHEME.match(path) is not None and not path.startswith("file://")


@final
class RemoteArray:
    """An array in a remote file, of which a slice is fetched when it is asked for; all of it at once is kept."""

    def __init__(self, url: str, offset: int, length: int, dtype: str) -> None:
        self._url, self._offset, self._length = url, offset, length
        self._all: npt.NDArray[Any] | None = None
        self.dtype = np.dtype(dtype).newbyteorder("<")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, wanted: slice) -> npt.NDArray[Any]:
        if self._all is not None:
            return self._all[wanted]
        first, last, _ = wanted.indices(self._length)
        if last <= first:
            return np.zeros(0, self.dtype)
        size = self.dtype.itemsize
        data = read_range(self._url, self._offset + first * size, (last - first) * size)
        found = np.frombuffer(data, self.dtype)
        if len(found) == self._length and self.dtype.kind == "i":  # offsets, which are asked for again and again
            self._all = found
        return found


def read_all(url: str) -> bytes:
    """The file at ``url``. Raises ``FileNotFoundError`` if there is none, ``DataError`` if it can't be read."""
    from fsspec.core import url_to_fs  # noqa: PLC0415  # as above

    try:
        files, path = url_to_fs(url)
        data: bytes = files.cat_file(path)
    except FileNotFoundError:
        raise
    except Exception as fault:  # each file system has errors of its own
        raise DataError(f"{url} can't be read ({type(fault).__name__}: {fault})") from fault
    return data


def read_range(url: str, start: int, count: int) -> bytes:
    """``count`` bytes of the file at ``url`` from ``start`` on. Raises ``DataError`` if they can't be had."""
    from fsspec.core import url_to_fs  # noqa: PLC0415  # caches on this disk do without

    try:
        files, path = url_to_fs(url)
        data: bytes = files.cat_file(path, start=start, end=start + count)
    except Exception as fault:  # each file system has errors of its own
        raise DataError(f"{url} can't be read ({type(fault).__name__}: {fault})") from fault
    if len(data) != count:
        raise DataError(f"{url} ends {count - len(data):,} bytes before what its manifest says: copy the cache anew")
    return data


def remote_chunks(path: str, shard: ShardRecord, dtype: str) -> Iterator[tuple[Any, Any, Any]]:
    """Tokens, document bounds and mask of each record batch of ``shard``."""
    url = f"{path.rstrip('/')}/{shard.file}"
    if len(shard.offset_ranges) != len(shard.token_ranges):
        raise DataError(
            f"{url}: its manifest does not say where the document offsets lie, as an older Marin wrote it: copy the "
            "cache to a disk, or build it again"
        )
    masks = shard.mask_ranges or (None,) * len(shard.token_ranges)
    for tokens, offsets, mask in zip(shard.token_ranges, shard.offset_ranges, masks, strict=True):
        yield (
            RemoteArray(url, *tokens, dtype),
            RemoteArray(url, *offsets, "int64"),
            None if mask is None else RemoteArray(url, *mask, "uint8"),
        )
