"""How the devices of a training are arranged, described."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from marin.errors import ConfigurationError
from marin.processing.scalars import with_plain_numbers

AXES = ("data", "fsdp", "tensor")

_PART = re.compile(r"(\w+)\s*=\s*(-?[0-9]+)")


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """So many parts along each axis; -1, on one axis at most, stands for what the devices leave.

    - ``data``: whole copies of the model, each with its rows of the batch;
    - ``fsdp``: rows of the batch, and the parameters cut in as many parts, gathered layer by layer when used;
    - ``tensor``: heads, inner dimensions and the vocabulary, within each layer: for models whose single layers are
      large, on devices that are tightly connected.

    It is not identity: the losses of another mesh are equal to about 1e-6.

    >>> MeshConfig(fsdp=-1, tensor=2).sizes(8)
    (1, 4, 2)
    >>> MeshConfig.parse("data=2, fsdp=2").sizes(4)
    (2, 2, 1)
    """

    fingerprint_name: ClassVar[str] = "marin.MeshConfig"

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        for name in AXES:
            size = getattr(self, name)
            if type(size) is not int or (size < 1 and size != -1):
                raise ConfigurationError(
                    f"MeshConfig: {name}={size!r} is no number of parts: give 1 or more, or -1 for what is left"
                )
        if [self.data, self.fsdp, self.tensor].count(-1) > 1:
            raise ConfigurationError("MeshConfig: -1 on two axes; only one can take what the devices leave")

    @classmethod
    def parse(cls, mesh: object) -> MeshConfig:
        """``mesh``, or what text such as ``"fsdp=4, tensor=2"`` says. Raises ``ConfigurationError``."""
        if isinstance(mesh, MeshConfig):
            return mesh
        parts = [_PART.fullmatch(part.strip()) for part in mesh.split(",")] if isinstance(mesh, str) else [None]
        found = [(part[1], int(part[2])) for part in parts if part and part[1] in AXES]
        if len(found) != len(parts) or len(dict(found)) != len(found):
            raise ConfigurationError(
                f"mesh={mesh!r} is no mesh: write MeshConfig(fsdp=8) or text such as 'fsdp=4, tensor=2', "
                f"with the axes {', '.join(AXES)}"
            )
        return cls(**dict(found))

    @property
    def num_devices(self) -> int | None:
        """How many devices it takes; ``None`` if it takes what there is."""
        sizes = (self.data, self.fsdp, self.tensor)
        return None if -1 in sizes else math.prod(sizes)

    def sizes(self, devices: int) -> tuple[int, int, int]:
        """Parts along data, fsdp and tensor for so many devices. Raises ``ConfigurationError`` if they don't fit."""
        given = (self.data, self.fsdp, self.tensor)
        known = math.prod(size for size in given if size != -1)
        if (known != devices and -1 not in given) or devices % known:
            raise ConfigurationError(
                f"a mesh of {', '.join(f'{name}={size}' for name, size in zip(AXES, given, strict=True))} does not fit "
                f"{devices} device{'s' * (devices != 1)}: the product of its parts must be the number of devices"
            )
        data, fsdp, tensor = (devices // known if size == -1 else size for size in given)
        return data, fsdp, tensor

    def __str__(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in AXES if getattr(self, name) != 1) or "one device"
