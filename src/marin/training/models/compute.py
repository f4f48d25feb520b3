"""How a model is computed: precision, kernels, and how arrays lie on the devices. Never what it computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from marin.training.devices import JaxDevice

Array = jax.Array

Attention: TypeAlias = Literal["reference", "blocked", "accelerated"]

MESH_AXES: Final[dict[str, tuple[str, ...]]] = {
    "batch": ("data", "fsdp"),
    "embed": ("fsdp",),
    "heads": ("tensor",),
    "mlp": ("tensor",),
    "vocab": ("tensor",),
}
"""Which axes of the mesh cut a logical axis of an array."""


@dataclass(frozen=True, kw_only=True)
class Compute:
    """``dtype`` is that of the operands of matrix products. ``remat`` computes the layers' inner values again in the
    backward pass rather than keep them. Without a ``mesh`` all is on one device."""

    dtype: jnp.dtype
    attention: Attention = "blocked"
    remat: bool = False
    mesh: Mesh | None = None

    @property
    def tensor_parts(self) -> int:
        """Over how many devices heads and columns of matrices are cut."""
        return 1 if self.mesh is None else self.mesh.shape["tensor"]

    @property
    def device(self) -> JaxDevice:
        """One of those that compute: of the mesh, or JAX's default."""
        if self.mesh is not None:
            return self.mesh.devices.flat[0]
        chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
        return jax.local_devices(backend=chosen)[0] if chosen is None or isinstance(chosen, str) else chosen

    def activations(self, x: Array, *axes: str | None) -> Array:
        """``x``, laid out over the devices by the logical names of its axes.

        Without this the compiler lets the layout of the parameters spread into the activations.
        """
        if self.mesh is None:
            return x
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec(self.mesh, x.shape, axes)))

    def table(self, rows: Array, axis: str | None) -> Array:
        """``rows`` of embeddings, ``[axis, hidden]``, as they are to lie when some are looked up: none is cut.

        Otherwise the compiler looks up parts of rows, and sends them about to bring them together.
        """
        return self.activations(rows, axis, None)


def spec(mesh: Mesh, shape: tuple[int, ...], axes: tuple[str | None, ...]) -> PartitionSpec:
    """How an array of ``shape`` with these logical axes is cut. An axis that can't be cut evenly is not cut."""
    cut = list[tuple[str, ...] | None]()
    for size, axis in zip(shape, axes, strict=True):
        names = tuple(name for name in MESH_AXES[axis] if mesh.shape[name] > 1) if axis else ()
        parts = 1
        for name in names:
            parts *= mesh.shape[name]
        cut.append(names if names and size % parts == 0 else None)
    return PartitionSpec(*cut)
