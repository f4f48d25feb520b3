"""Named arrays as safetensors files, written in one pass and read by the library.

Writing is our own, in the library's format: each piece of an array is checked for finite numbers, added to the digest
and written while it is in the processor's cache. So a state of many gigabytes is neither copied nor read back, an array
that is not contiguous is written as what it holds, and the operating system's refusal keeps its number.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from marin.errors import CheckpointError, NonFiniteLossError

NamedArrays: TypeAlias = dict[str, NDArray[Any]]

PIECE_BYTES = 1 << 20
"""Checked, digested and written at once: fits the cache of one core."""

_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a file holds that was written whole."""

    bytes: int
    sha256: str


def write_tensors(path: str, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> Written:
    """Write ``arrays`` to ``path`` and to the disk, equal arrays as equal bytes. Raises as ``write_each``."""
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # the largest first: all are aligned
    forms = {name: (arrays[name].dtype, arrays[name].shape) for name in order}
    return write_each(path, forms, arrays.__getitem__, metadata)


def write_each(
    path: str,
    forms: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    read: Callable[[str], NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> Written:
    """As ``write_tensors``, of arrays that ``read`` gives by name, one after the other in the order of ``forms``, which
    tells type and shape of each.

    Raises ``NonFiniteLossError`` naming an array with numbers that are not finite, ``CheckpointError`` for a type that
    the format lacks, and ``OSError``; what is at ``path`` then is to be removed.
    """
    digest, size = hashlib.sha256(), 0
    # Unbuffered: a thread that writes holds no lock of the interpreter when its process ends.
    with open(path, "wb", buffering=0) as file:
        for piece in _pieces(forms, read, metadata or {}):
            digest.update(piece)
            rest = memoryview(piece)
            while rest:
                rest = rest[file.write(rest) :]
            size += len(piece)
        os.fsync(file.fileno())
    return Written(bytes=size, sha256=digest.hexdigest())


def read_tensors(path: str, prefix: str = "") -> NamedArrays:
    """The arrays of the file whose names begin with ``prefix``, which is taken off.

    Raises ``CheckpointError`` if it can't be read.
    """
    try:
        with safe_open(path, framework="np") as file:
            names: list[str] = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118  # it is no dict
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    except Exception as fault:  # the library raises several classes of its own
        raise CheckpointError(f"{path} can't be read as safetensors: {fault}") from fault


def _pieces(
    forms: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    read: Callable[[str], NDArray[Any]],
    metadata: Mapping[str, str],
) -> Iterator[bytes | memoryview]:
    yield _header(forms, metadata)
    for name, form in forms.items():
        array = read(name)
        assert (array.dtype, array.shape) == form, f"{name} is {array.dtype}{array.shape}, and was to be {form}"
        flat = array.reshape(-1)  # of an array that is not contiguous, a copy
        per_piece = PIECE_BYTES // flat.dtype.itemsize
        may_be_infinite = flat.dtype.kind not in "iub"
        for start in range(0, flat.size, per_piece):
            piece = flat[start : start + per_piece]
            if may_be_infinite and not np.isfinite(piece).all():
                raise NonFiniteLossError(f"{name} holds infinite or NaN numbers")
            yield piece.view(np.uint8).data


def _header(forms: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, (dtype, shape) in forms.items():
        code = _CODES.get(dtype.name) if dtype.isnative else None
        if code is None:
            raise CheckpointError(f"{name} is of type {dtype.str}, which a safetensors file can't hold")
        end = offset + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
