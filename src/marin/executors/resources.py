"""What a step needs to run: where, never what. Resources are not identity."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from marin.errors import InvalidResourcesError

DeviceKind = Literal["cpu", "cuda", "tpu"]

_DEVICE = re.compile(r"(cpu|tpu|cuda)(?::(0|[1-9]\d{0,3}))?")
_LOOSE_DEVICE = re.compile(r"\s*(cpu|tpu|cuda|gpu|nvidia)\s*[:_-]?\s*(\d{1,4})?\s*", re.IGNORECASE)


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
        given: Any = resources
        match = _DEVICE.fullmatch(given) if isinstance(given, str) else None
        if match is None:
            raise InvalidResourcesError(_fault(given))
        kind, index = match.groups()
        return cls(device=Device(cast(DeviceKind, kind), None if index is None else int(index)))


def _fault(resources: Any) -> str:
    choices = "write 'cpu', 'cuda', 'cuda:0' or 'tpu', or a ResourceConfig"
    if not isinstance(resources, str):
        return f"resources={resources!r} is {type(resources).__name__}, not text: {choices}"
    near = _LOOSE_DEVICE.fullmatch(resources)
    if near is None:
        return f"resources={resources!r} is not a device: {choices}"
    kind = near[1].lower()
    meant = "cuda" if kind in ("gpu", "nvidia") else kind
    if near[2] is not None:
        meant += f":{int(near[2])}"
    return f"resources={resources!r} is not a device: did you mean {meant!r}? Otherwise {choices}"
