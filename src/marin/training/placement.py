"""Where the arrays of a training lie: on one device, or cut over a mesh of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from marin.errors import ConfigurationError
from marin.training.arrays import dotted_name
from marin.training.checkpoint import Precision
from marin.training.devices import JaxDevice
from marin.training.mesh_config import AXES, MeshConfig
from marin.training.models.compute import Compute, spec
from marin.training.models.layers import LAYERS, stack_layers, unstack_layers

Partition: TypeAlias = Mapping[str, tuple[str | None, ...]]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``stacked``: whether layers are scanned, their arrays stacked. Without a mesh there is one device.

    Of several hosts each holds the devices that stand together in the mesh; ``device`` is one of this process.
    """

    compute: Compute
    device: JaxDevice
    stacked: bool

    @property
    def mesh(self) -> Mesh | None:
        return self.compute.mesh

    @property
    def devices(self) -> list[JaxDevice]:
        """All that take part."""
        return [self.device] if self.mesh is None else list(self.mesh.devices.flat)

    @property
    def hosts(self) -> int:
        """How many processes these devices belong to."""
        return len({device.process_index for device in self.devices})

    @property
    def own_devices(self) -> list[JaxDevice]:
        """Those of this process."""
        return [device for device in self.devices if device.process_index == self.device.process_index]

    @property
    def share(self) -> tuple[int, int]:
        """Which part of a batch this process computes, and of how many."""
        if self.mesh is None or self.hosts == 1:
            return 0, 1
        hosts_per_part = max(1, self.mesh.shape["tensor"] // len(self.own_devices))
        return self.device.process_index // hosts_per_part, self.hosts // hosts_per_part

    @property
    def batch_parts(self) -> int:
        """Into how many parts the rows of a batch are cut."""
        return 1 if self.mesh is None else self.mesh.shape["data"] * self.mesh.shape["fsdp"]

    def shardings(self, tree: Any, partition: Partition) -> Any:
        """For each array of ``tree``, parameters or what an optimizer keeps of them, how it is cut."""
        mesh = self.mesh
        if mesh is None:
            return jax.tree.map(lambda _: jax.sharding.SingleDeviceSharding(self.device), tree)

        def of(path: tuple[Any, ...], array: Any) -> NamedSharding:
            return NamedSharding(mesh, spec(mesh, array.shape, _axes(path, array.shape, partition)))

        return jax.tree_util.tree_map_with_path(of, tree)

    def put_rows(self, rows: Any) -> Any:
        """Arrays whose first axis is the batch's, on the devices."""
        mesh = self.mesh
        if mesh is None:
            return rows
        sharding = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
        if self.hosts == 1:
            return jax.device_put(rows, sharding)
        return jax.tree.map(lambda array: _laid_out(array, sharding), rows)

    def put_own_rows(self, rows: Any, batch_size: int) -> Any:
        """As ``put_rows``, of those rows of a batch that are the ``share`` of this process."""
        if self.mesh is None or self.hosts == 1:
            return self.put_rows(rows)
        sharding = NamedSharding(self.mesh, PartitionSpec(("data", "fsdp")))

        def put(array: Any) -> jax.Array:
            return jax.make_array_from_process_local_data(sharding, array, (batch_size, *array.shape[1:]))

        return jax.tree.map(put, rows)

    def put_wish(self, wish: Sequence[int]) -> jax.Array:
        """Small numbers of this process beside those of all others."""
        assert self.mesh is not None, "with several hosts there is a mesh"
        own = np.array([wish], np.int32)
        sharding = NamedSharding(self.mesh, PartitionSpec(AXES))
        return jax.make_array_from_callback((len(self.devices), own.shape[1]), sharding, lambda _: own)

    def largest_wish(self, wishes: jax.Array) -> jax.Array:
        """Each number as it is where it is the largest."""
        assert self.mesh is not None, "with several hosts there is a mesh"
        largest = jax.numpy.max(wishes, axis=0)
        return jax.lax.with_sharding_constraint(largest, NamedSharding(self.mesh, PartitionSpec()))

    def put_like(self, tree: Any, like: Any) -> Any:
        """``tree``, which every process has whole, laid out as the arrays of ``like``."""
        shardings = jax.tree.map(lambda array: array.sharding, like)
        return jax.device_put(tree, shardings) if self.hosts == 1 else jax.tree.map(_laid_out, tree, shardings)

    def arranged(self, tree: Any) -> Any:
        """A tree with layers as a list, as this placement computes with it."""
        return each_layered(stack_layers, tree) if self.stacked else tree

    @staticmethod
    def canonical(tree: Any) -> Any:
        """The opposite of ``arranged``: layers as a list, as they are saved."""
        return each_layered(unstack_layers, tree)


def _laid_out(array: Any, sharding: NamedSharding) -> jax.Array:
    return jax.make_array_from_callback(array.shape, sharding, lambda index: np.asarray(array[index]))


def each_layered(change: Any, tree: Any) -> Any:
    """``tree``, which may be the state of an optimizer, with ``change`` applied to each tree of layers in it."""

    def is_layered(value: Any) -> bool:
        return isinstance(value, dict) and LAYERS in value

    return jax.tree.map(lambda value: change(value) if is_layered(value) else value, tree, is_leaf=is_layered)


def make_placement(
    devices: Sequence[JaxDevice], mesh: MeshConfig | None, *, precision: Precision, remat: bool | None = None
) -> Placement:
    """The placement on ``devices``, all of one kind. Left out, ``mesh`` cuts the parameters over all of them."""
    sizes = (mesh or MeshConfig(fsdp=-1)).sizes(len(devices))
    on_cpu = devices[0].platform == "cpu"
    compute = Compute(
        dtype=jax.numpy.dtype(precision),
        attention="blocked" if on_cpu else "accelerated",
        remat=not on_cpu if remat is None else remat,
        mesh=Mesh(np.array(devices).reshape(sizes), AXES) if math.prod(sizes) > 1 else None,
    )
    here = [device for device in devices if device.process_index == jax.process_index()]
    tensor = sizes[2]
    if len(here) < len(devices) and tensor % len(here) and len(here) % tensor:
        raise ConfigurationError(
            f"tensor={tensor} of the mesh does not fit hosts of {len(here)} devices: choose a number that divides "
            f"{len(here)}, or a multiple of it"
        )
    return Placement(compute=compute, device=here[0], stacked=not on_cpu)


def _axes(path: tuple[Any, ...], shape: tuple[int, ...], partition: Partition) -> tuple[str | None, ...]:
    """The logical axes of one array: by the longest end of its name in ``partition``, or else by its shape."""
    dotted = dotted_name(path)
    names = dotted.split(".")
    is_stacked = LAYERS in names and not names[names.index(LAYERS) + 1].isdigit()
    inner = shape[1:] if is_stacked else shape
    known = [name for name in partition if dotted == name or dotted.endswith("." + name)]
    axes = partition[max(known, key=len)] if known else ()
    if len(axes) != len(inner):
        largest = max(range(len(inner)), key=inner.__getitem__) if len(inner) > 1 else None
        axes = tuple("embed" if number == largest else None for number in range(len(inner)))
    return (None, *axes) if is_stacked else axes
