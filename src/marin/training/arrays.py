"""Trees of arrays as files: safetensors with dotted names."""

from __future__ import annotations

import errno
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from marin.errors import CheckpointError, NonFiniteLossError, StorageFullError
from marin.processing.durable import whole_file

NamedArrays: TypeAlias = dict[str, NDArray[Any]]


def named_arrays(tree: Any) -> NamedArrays:
    """The leaves of ``tree`` on the host, by name.

    >>> sorted(named_arrays({"layers": [{"q_proj": np.zeros(2)}], "norm": np.ones(2)}))
    ['layers.0.q_proj', 'norm']
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def tree_of(arrays: NamedArrays, like: Any, *, origin: str) -> Any:
    """The tree shaped as ``like`` with the leaves ``arrays``. Raises ``CheckpointError`` naming what does not fit."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {_name(path): leaf for path, leaf in leaves}
    if missing := sorted(wanted.keys() - arrays.keys()):
        raise CheckpointError(f"{origin} lacks the array {missing[0]}: it is of another model or optimizer")
    for name, leaf in wanted.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise CheckpointError(
                f"{origin}: {name} is {arrays[name].dtype}{list(arrays[name].shape)}, but the model wants "
                f"{leaf.dtype}{list(leaf.shape)}"
            )
    return jax.tree_util.tree_unflatten(structure, [arrays[name] for name in wanted])


def save_arrays(path: str, arrays: NamedArrays) -> None:
    """Write ``arrays`` to ``path``, whole or not at all. Refuses numbers that are not finite."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NonFiniteLossError(f"{name} holds infinite or NaN numbers: {path} is not written")
    try:
        with whole_file(path) as scratch:
            save_file(arrays, scratch)
    except Exception as fault:
        if _is_full(fault):
            raise StorageFullError(f"no space left to write {path}: free some, then run again") from fault
        raise


def load_arrays(path: str) -> NamedArrays:
    """The arrays of a file that ``save_arrays`` wrote."""
    try:
        return load_file(path)
    except Exception as fault:  # the library raises several classes of its own
        raise CheckpointError(f"{path} can't be read as safetensors: {fault}") from fault


def _is_full(fault: BaseException) -> bool:
    # safetensors wraps the operating system's error in its own class and keeps only its text
    return getattr(fault, "errno", None) == errno.ENOSPC or "No space left" in str(fault)


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)
