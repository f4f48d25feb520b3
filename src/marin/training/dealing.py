"""The arrays of a training on several hosts, whole, on the hosts that are to write them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from marin.training.arrays import copy_leaf, dotted_name, host_copy
from marin.training.hosts import Hosts

PIECE_BYTES = 1 << 28
"""Of a larger array whose first axis is not cut, such as that of stacked layers, rows travel one after the other."""


def deal(sizes: Sequence[int], hosts: int) -> list[int]:
    """Which host takes each of so many bytes, so that all have about as much; the same on every host.

    >>> deal([10, 40, 30, 20], hosts=2)
    [0, 0, 1, 1]
    """
    loads, owners = [0] * hosts, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += sizes[number]
    return owners


def own_copy(tree: Any, reuse: Any, hosts: Hosts) -> Any:
    """``tree`` with the arrays that this host is to save copied to its memory; of one host all of them."""
    if hosts.count == 1:
        return host_copy(tree, reuse=reuse)
    return dealt_copy(tree, reuse, host=hosts.index, hosts=hosts.count)


def whole_on_first(tree: Any, hosts: Hosts) -> Any:
    """``tree``, with arrays on host 0 that it has whole, and without any on others."""
    return tree if hosts.count == 1 else dealt_copy(tree, host=hosts.index, hosts=hosts.count, only=0)


def dealt_copy(tree: Any, reuse: Any = None, *, host: int, hosts: int, only: int | None = None) -> Any:
    """``tree`` with the arrays that ``host`` takes copied whole to its memory, and ``None`` in place of the others.

    Every host is to call it for the same tree: they send each other what they lack, one array at a time. ``only``: the
    one host that takes them all. ``reuse`` is as of ``host_copy``.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    owners = deal([leaf.nbytes for _, leaf in leaves], hosts) if only is None else [only] * len(leaves)
    buffers: list[Any] = [None] * len(leaves) if reuse is None else structure.flatten_up_to(reuse)
    copies = list[Any]()
    for (path, leaf), owner, buffer in zip(leaves, owners, buffers, strict=True):
        if _holds_all(leaf, owner):
            copies.append(copy_leaf(dotted_name(path), leaf, buffer) if owner == host else None)
            continue
        copies.append(_put_together(leaf, _gathered(leaf), buffer, keep=owner == host))
    return jax.tree_util.tree_unflatten(structure, copies)


def _holds_all(array: jax.Array, host: int) -> bool:
    """Whether the devices of ``host`` hold every part of ``array``."""
    where = array.sharding.devices_indices_map(array.shape)
    parts = {str(index) for index in where.values()}
    return parts == {str(index) for device, index in where.items() if device.process_index == host}


def _gathered(array: jax.Array) -> Iterator[tuple[Any, jax.Array]]:
    """``array`` on every device: where each piece belongs, and the piece."""
    sharding = array.sharding
    assert isinstance(sharding, NamedSharding), "what several hosts hold is on a mesh"
    cut = sharding.spec[0] if len(sharding.spec) else None
    if array.nbytes <= PIECE_BYTES or cut is not None:
        yield ..., _whole(sharding.mesh)(array)
        return
    for row in range(array.shape[0]):
        yield row, _row(sharding.mesh)(array, np.int32(row))


def _put_together(
    array: jax.Array, pieces: Iterator[tuple[Any, jax.Array]], buffer: Any, *, keep: bool
) -> np.ndarray[Any, Any] | None:
    fits = buffer is not None and (buffer.shape, buffer.dtype) == (array.shape, array.dtype)
    whole = (buffer if fits else np.empty(array.shape, array.dtype)) if keep else None
    for place, piece in pieces:
        piece.block_until_ready()  # or many would be on their way at once
        if whole is not None:
            whole[place] = np.asarray(piece.addressable_data(0))
    return whole


@functools.cache
def _whole(mesh: Mesh) -> Any:
    return jax.jit(lambda array: array, out_shardings=NamedSharding(mesh, PartitionSpec()))


@functools.cache
def _row(mesh: Mesh) -> Any:
    return jax.jit(
        lambda array, row: jax.lax.dynamic_index_in_dim(array, row, keepdims=False),
        out_shardings=NamedSharding(mesh, PartitionSpec()),
    )
