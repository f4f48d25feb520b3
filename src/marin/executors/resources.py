"""What a step needs to run: where, never what. Resources are not identity."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from marin.errors import InvalidResourcesError

DeviceKind = Literal["cpu", "cuda", "tpu"]

_DEVICE = re.compile(r"(cpu|tpu|cuda)(?::(0|[1-9]\d*))?")


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device, and which one where the user chose (``None``: any)."""

    kind: DeviceKind
    index: int | None = None

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


@dataclass(frozen=True, kw_only=True)
class ResourceConfig:
    """What a step needs.

    >>> str(ResourceConfig.parse("cuda:0").device)
    'cuda:0'
    """

    device: Device = Device("cpu")

    @classmethod
    def parse(cls, resources: ResourceConfig | str) -> ResourceConfig:
        """Reads ``"cpu"``, ``"cuda"``, ``"cuda:0"``, ``"tpu"``. Checks the syntax; presence is checked where it runs.

        Raises ``InvalidResourcesError``.
        """
        if isinstance(resources, ResourceConfig):
            return resources
        match = _DEVICE.fullmatch(resources) if isinstance(resources, str) else None
        if match is None:
            raise InvalidResourcesError(
                f"resources={resources!r} is not a device: write 'cpu', 'cuda', 'cuda:0' or 'tpu', or a ResourceConfig"
            )
        kind, index = match.groups()
        return cls(device=Device(kind, None if index is None else int(index)))  # type: ignore[arg-type]
