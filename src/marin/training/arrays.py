"""Trees of arrays: on the host, by name, and as files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from marin.errors import CheckpointError, NonFiniteLossError
from marin.processing.durable import whole_file
from marin.storage.faults import translated_faults
from marin.training.tensor_file import NamedArrays, read_tensors, write_tensors

__all__ = ["NamedArrays", "host_copy", "load_arrays", "named_arrays", "save_arrays", "tree_bytes", "tree_of"]


def named_arrays(tree: Any) -> NamedArrays:
    """The leaves of ``tree`` on the host, by name.

    On CPU they are the memory of the arrays themselves: before a step that consumes those, take ``host_copy``.

    >>> sorted(named_arrays({"layers": [{"q_proj": np.zeros(2)}], "norm": np.ones(2)}))
    ['layers.0.q_proj', 'norm']
    """
    return {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()}


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of ``tree`` as they are, by name."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {dotted_name(path): leaf for path, leaf in leaves}


def array_shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each leaf of ``tree``, by name."""
    return {name: tuple(leaf.shape) for name, leaf in named_leaves(tree).items()}


def host_copy(tree: Any, *, reuse: Any = None) -> Any:
    """``tree`` with its arrays copied to memory of the host that no step of the training touches.

    Arrays that lie on several devices are put together; of replicas one is taken. ``reuse`` is an earlier copy of such
    a tree that nobody needs any more: its memory is filled anew, which takes a quarter of the time. Raises
    ``CheckpointError`` for an array of which other processes hold a part.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    sources = [_Source(dotted_name(path), leaf) for path, leaf in leaves]
    buffers: list[Any] = [None] * len(sources) if reuse is None else jax.tree.leaves(reuse)
    copies = list[NDArray[Any]]()
    for source, following, buffer in zip(sources, [*sources[1:], None], buffers, strict=True):
        if following is not None:
            following.start()  # travels while this one is put in its place; only these two are held twice
        copies.append(source.copied(buffer))
    return jax.tree_util.tree_unflatten(structure, copies)


def copy_leaf(name: str, array: Any, buffer: NDArray[Any] | None = None) -> NDArray[Any]:
    """One array as ``host_copy`` does it, of which this process holds every part."""
    return _Source(name, array).copied(buffer)


def tree_bytes(tree: Any) -> int:
    """How much memory the arrays of ``tree`` take, or would take if they are shapes only.

    >>> tree_bytes({"w": jax.ShapeDtypeStruct((3, 4), "float32"), "count": np.zeros((), np.int32)})
    52
    """
    return sum(int(leaf.size) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def tree_of(arrays: NamedArrays, like: Any, *, origin: str) -> Any:
    """The tree shaped as ``like`` with the leaves ``arrays``. Raises ``CheckpointError`` naming what does not fit."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {dotted_name(path): leaf for path, leaf in leaves}
    if missing := sorted(wanted.keys() - arrays.keys()):
        raise CheckpointError(f"{origin} lacks the array {missing[0]}: it is of another model or optimizer")
    for name, leaf in wanted.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            raise CheckpointError(
                f"{origin}: {name} is {arrays[name].dtype}{list(arrays[name].shape)}, but the model wants "
                f"{leaf.dtype}{list(leaf.shape)}"
            )
    return jax.tree_util.tree_unflatten(structure, [arrays[name] for name in wanted])


def save_arrays(path: str, arrays: NamedArrays, metadata: Mapping[str, str] | None = None) -> str:
    """Write ``arrays`` to ``path``, whole or not at all; the file's sha256. Refuses numbers that are not finite."""
    try:
        with translated_faults(path, writing=True), whole_file(path) as scratch:
            return write_tensors(scratch, arrays, metadata).sha256
    except NonFiniteLossError as fault:
        raise NonFiniteLossError(f"{path} is not written: {fault}") from fault


def load_arrays(path: str) -> NamedArrays:
    """The arrays of a safetensors file."""
    return read_tensors(path)


class _Source:
    """One array on its way to the host."""

    def __init__(self, name: str, array: Any) -> None:
        self._array = array
        self._parts: list[tuple[Any, jax.Array]] | None = None
        if isinstance(array, jax.Array):
            shards = {str(shard.index): shard for shard in array.addressable_shards}  # of replicas one
            if sum(shard.data.size for shard in shards.values()) < array.size:
                raise CheckpointError(f"{name} is spread over several processes, and this one holds only a part")
            self._parts = [(shard.index, _apart(shard.data)) for shard in shards.values()]

    def start(self) -> None:
        """Let the devices send what will be asked for."""
        for _, part in self._parts or ():
            part.copy_to_host_async()

    def copied(self, buffer: NDArray[Any] | None) -> NDArray[Any]:
        """The whole array, in memory of its own (``buffer``, if that fits); nothing is held here any longer."""
        array: Any = self._array
        parts, self._array, self._parts = self._parts, None, None
        if parts is not None and len(parts) == 1 and _platform(parts[0][1]) != "cpu":
            return np.asarray(parts[0][1])  # a copy already; on CPU it would be the array's own memory
        if parts is None:
            array = np.asarray(array)
        fits = buffer is not None and (buffer.shape, buffer.dtype) == (array.shape, array.dtype)
        whole = buffer if buffer is not None and fits and buffer.flags.writeable else np.empty(array.shape, array.dtype)
        if parts is None:
            whole[...] = array
        while parts:
            index, part = parts.pop()
            whole[index] = np.asarray(part)
        return whole


def _platform(array: jax.Array) -> str:
    (device,) = array.devices()
    return device.platform


def _apart(array: jax.Array) -> jax.Array:
    """The same memory as another ``jax.Array``: an array keeps what it sends to the host, this one is soon gone."""
    return jax.make_array_from_single_device_arrays(array.shape, array.sharding, [array])


def dotted_name(path: tuple[Any, ...]) -> str:
    """What a leaf is called: the keys that lead to it, with dots between."""
    return ".".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)
