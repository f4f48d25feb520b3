"""Safetensors files read and written one array at a time, so that a model never needs to be in memory as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Self, TypeAlias, final

import jax.numpy as jnp  # makes numpy know bfloat16, which safetensors reads into
import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from marin.errors import DataError
from marin.processing.durable import whole_file
from marin.storage.faults import translated_faults
from marin.training.tensor_file import write_each

Shape: TypeAlias = tuple[int, ...]

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype(np.float32),
    "BF16": jnp.dtype(jnp.bfloat16),
    "F16": np.dtype(np.float16),
}
"""What is read and written, by its name in the files."""

INDEX_FILE = "model.safetensors.index.json"
MODEL_FILE = "model.safetensors"


@final
class Tensors:
    """The tensors of a model's files, by name. Use it in a ``with`` block."""

    def __init__(self, folder: str) -> None:
        """Raises ``DataError`` for files that are missing or can't be read."""
        self._opened = ExitStack()
        self._files = dict[str, Any]()
        self._folder = folder
        try:
            for file in weight_files(folder):
                self._open(file)
        except BaseException:
            self._opened.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def names(self) -> list[str]:
        return sorted(self._files)

    def read(self, name: str) -> NDArray[Any]:
        """One tensor, as it is in the file."""
        file = self._files[name]
        kind = file.get_slice(name).get_dtype()
        if kind not in DTYPES:
            raise DataError(
                f"{self._folder}: the tensor {name} is {kind}: only {', '.join(DTYPES)} can be imported, not quantized "
                "or other numbers"
            )
        return file.get_tensor(name)

    def _open(self, file: str) -> None:
        path = os.path.join(self._folder, file)
        try:
            opened = self._opened.enter_context(safe_open(path, framework="numpy"))
        except Exception as fault:  # the library raises several classes of its own
            raise DataError(f"{path} can't be read as safetensors: {fault}; download it again") from fault
        self._files |= dict.fromkeys(opened.keys(), opened)


def weight_files(folder: str) -> list[str]:
    """The names of the files that hold a model's tensors. Raises ``DataError`` if there are none."""
    if os.path.isfile(os.path.join(folder, MODEL_FILE)):  # where there are both, transformers takes this one too
        return [MODEL_FILE]
    index = os.path.join(folder, INDEX_FILE)
    if os.path.isfile(index):
        with open(index, "rb") as stream:
            return indexed_files(stream.read(), origin=index)
    raise no_weights(folder, os.listdir(folder))


def indexed_files(index: bytes, *, origin: str) -> list[str]:
    """The files that an index names."""
    try:
        files = set(msgspec.json.decode(index)["weight_map"].values())
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as fault:
        raise DataError(f"{origin} is no index of a model's files: {fault}") from fault
    if outside := [file for file in files if os.path.basename(file) != file or file.startswith(".")]:
        raise DataError(f"{origin} names {outside[0]!r}, which is no file beside it")
    return sorted(files)


def no_weights(origin: str, files: list[str]) -> DataError:
    """The error for a model without tensors that can be read."""
    pickled = [file for file in sorted(files) if file.endswith((".bin", ".pt", ".pth"))]
    hint = (
        f"{pickled[0]} is a pickle, which could run any program: convert it with transformers (save_pretrained)"
        if pickled
        else f"it has {', '.join(sorted(files)[:8]) or 'no files'}"
    )
    return DataError(f"{origin} has neither {MODEL_FILE} nor {INDEX_FILE}; {hint}")


def write_tensors(
    path: str,
    shapes: Mapping[str, Shape],
    read: Callable[[str], NDArray[Any]],
    *,
    kind: str,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write a file of the arrays that ``read`` gives by name, one after the other; whole or not at all. Its sha256.

    All have the numbers that ``kind`` names. Raises ``StorageFullError`` if the disk is full.
    """
    forms = {name: (DTYPES[kind], shape) for name, shape in shapes.items()}
    with translated_faults(path, writing=True), whole_file(path) as scratch:
        return write_each(scratch, forms, read, metadata).sha256
