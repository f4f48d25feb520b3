"""What a step needs to run: where, never what. Resources are not identity."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from marin.errors import InvalidResourcesError
from marin.executors.quantities import parse_duration, parse_size

DeviceKind = Literal["cpu", "cuda", "tpu"]

_DEVICE = re.compile(r"(cpu|tpu|cuda)(?::(0|[1-9]\d{0,3}))?")
_LOOSE_DEVICE = re.compile(r"\s*(cpu|tpu|cuda|gpu|nvidia)\s*[:_-]?\s*(\d{1,4})?\s*", re.IGNORECASE)
_ACCELERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_CPUS = 100_000
_MAX_GPUS = 10_000
_MAX_INDEX = 9999


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device, and which one where the user chose (``None``: any)."""

    kind: DeviceKind
    index: int | None = None

    def __post_init__(self) -> None:
        index: Any = self.index
        is_number = isinstance(index, int) and not isinstance(index, bool) and 0 <= index <= _MAX_INDEX
        if self.kind not in ("cpu", "cuda", "tpu") or not (index is None or is_number):
            raise InvalidResourcesError(
                f"Device({self.kind!r}, {index!r}): give a kind, 'cpu', 'cuda' or 'tpu', and which one: None for any, "
                f"or a number from 0 to {_MAX_INDEX}"
            )

    def __str__(self) -> str:
        return self.kind if self.index is None else f"{self.kind}:{self.index}"


@dataclass(frozen=True, init=False)
class ResourceConfig:
    """What a step needs. It runs when the machine has that much to spare, and never where there is not so much.

    - ``device``: ``"cpu"``, ``"cuda"``, ``"cuda:0"`` or ``"tpu"``.
    - ``cpus``: cores that count as taken while the step runs. It is not kept from using more.
    - ``memory``: bytes that count as taken, or text such as ``"16GB"`` (10⁹ bytes) or ``"512MiB"`` (2²⁰). None: not
      counted.
    - ``gpus``: how many GPUs the step has to itself; 1 for a ``cuda`` device.
    - ``accelerator``: the type of the device, such as ``"H100"`` or ``"v5p-8"``.
    - ``disk``: bytes, or text as for ``memory``, that must be free in the store when the step starts.
    - ``time``: seconds, or text such as ``"2h"`` or ``"1d"``, after which the step is stopped.

    >>> ResourceConfig(memory="16GB", time="2h").memory
    16000000000
    >>> str(ResourceConfig.parse("cuda:0").device)
    'cuda:0'
    """

    device: Device
    cpus: float
    memory: int | None
    gpus: int
    accelerator: str | None
    disk: int | None
    time: float | None

    def __init__(
        self,
        *,
        device: Device | str | None = None,
        cpus: float = 1.0,
        memory: int | str | None = None,
        gpus: int | None = None,
        accelerator: str | None = None,
        disk: int | str | None = None,
        time: float | str | None = None,
    ) -> None:
        chosen = _checked_device(device, gpus)
        fields: dict[str, Any] = {
            "device": chosen,
            "cpus": _checked_cpus(cpus),
            "memory": None if memory is None else parse_size(memory, "memory"),
            "gpus": _checked_gpus(chosen, gpus),
            "accelerator": _checked_accelerator(chosen, accelerator),
            "disk": None if disk is None else parse_size(disk, "disk"),
            "time": None if time is None else parse_duration(time, "time"),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def with_cpu(
        cls,
        cpus: float = 1.0,
        *,
        memory: int | str | None = None,
        disk: int | str | None = None,
        time: float | str | None = None,
    ) -> ResourceConfig:
        """``cpus`` cores and no accelerator.

        >>> ResourceConfig.with_cpu(4, memory="8GiB").cpus
        4.0
        """
        return cls(cpus=cpus, memory=memory, disk=disk, time=time)

    @classmethod
    def with_gpu(
        cls,
        accelerator: str | None = None,
        *,
        count: int = 1,
        cpus: float = 1.0,
        memory: int | str | None = None,
        disk: int | str | None = None,
        time: float | str | None = None,
    ) -> ResourceConfig:
        """``count`` GPUs, of the type ``accelerator`` if that is given.

        >>> ResourceConfig.with_gpu("H100", count=8).gpus
        8
        """
        return cls(device="cuda", gpus=count, accelerator=accelerator, cpus=cpus, memory=memory, disk=disk, time=time)

    @classmethod
    def with_tpu(
        cls,
        accelerator: str | None = None,
        *,
        cpus: float = 1.0,
        memory: int | str | None = None,
        disk: int | str | None = None,
        time: float | str | None = None,
    ) -> ResourceConfig:
        """All TPU chips of one machine, of the type ``accelerator`` if that is given.

        >>> ResourceConfig.with_tpu("v5p-8").accelerator
        'v5p-8'
        """
        return cls(device="tpu", accelerator=accelerator, cpus=cpus, memory=memory, disk=disk, time=time)

    @classmethod
    def parse(cls, resources: ResourceConfig | str) -> ResourceConfig:
        """Reads ``"cpu"``, ``"cuda"``, ``"cuda:0"``, ``"tpu"``. Checks the syntax; presence is checked where it runs.

        Raises ``InvalidResourcesError``.
        """
        return resources if isinstance(resources, ResourceConfig) else cls(device=_parse_device(resources))


def _parse_device(given: Any) -> Device:
    match = _DEVICE.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise InvalidResourcesError(_fault(given))
    kind, index = match.groups()
    return Device(cast(DeviceKind, kind), None if index is None else int(index))


def _checked_device(device: Device | str | None, gpus: Any) -> Device:
    if device is None:
        return Device("cuda" if gpus else "cpu")
    return device if isinstance(device, Device) else _parse_device(device)


def _checked_cpus(cpus: Any) -> float:
    # 0.001: capacity is counted in thousandths.
    if not isinstance(cpus, int | float) or isinstance(cpus, bool) or not 0.001 <= cpus <= _MAX_CPUS:
        raise InvalidResourcesError(f"cpus={cpus!r} is not a number of cores: give one above 0, such as 4 or 0.5")
    assert math.isfinite(cpus)
    return float(cpus)


def _checked_gpus(device: Device, gpus: Any) -> int:
    if gpus is None:
        return 1 if device.kind == "cuda" else 0
    if not isinstance(gpus, int) or isinstance(gpus, bool) or not 0 <= gpus <= _MAX_GPUS:
        raise InvalidResourcesError(f"gpus={gpus!r} is not a number of GPUs: give one such as 1 or 8")
    if gpus and device.kind != "cuda":
        raise InvalidResourcesError(f"gpus={gpus} with device='{device}': leave device out, or write device='cuda'")
    if device.kind == "cuda" and gpus != 1 and (gpus == 0 or device.index is not None):
        remedy = "write device='cpu'" if gpus == 0 else "write device='cuda', and any that are free are taken"
        raise InvalidResourcesError(f"gpus={gpus} with device='{device}', which is 1: {remedy}")
    return gpus


def _checked_accelerator(device: Device, accelerator: Any) -> str | None:
    if accelerator is None:
        return None
    if not isinstance(accelerator, str) or not _ACCELERATOR.fullmatch(accelerator):
        raise InvalidResourcesError(f"accelerator={accelerator!r} is not the name of a type, such as 'H100' or 'v5p-8'")
    if device.kind == "cpu":
        raise InvalidResourcesError(
            f"accelerator={accelerator!r} without a device: write ResourceConfig.with_gpu({accelerator!r}) or "
            f"ResourceConfig.with_tpu({accelerator!r})"
        )
    return accelerator


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
