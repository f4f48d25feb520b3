"""Which steps may run at the same time on one machine. Pure bookkeeping, exact: cores are counted in thousandths.

First come, first served, with reservation: a step that does not fit waits, and what it needs is kept for it. A later
step may overtake it only with what is left beside that. So small steps go on beside a large one that waits for a GPU,
and never starve one that waits for all cores: of what a waiting step lacks, nothing that becomes free is given away.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from marin.executors.resources import ResourceConfig

K = TypeVar("K", bound=Hashable)

UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a machine has. ``memory`` in bytes; ``gpus`` is how many there are to use, ``tpu`` whether there is one."""

    cpus: float
    memory: int | None = None
    gpus: int = 0
    tpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a step takes. ``gpu``: which one, if it must be a certain one. ``milli_cpus``: thousandths of a core."""

    milli_cpus: int = 1000
    memory: int = 0
    gpus: int = 0
    gpu: int | None = None
    tpu: bool = False

    @classmethod
    def of(cls, resources: ResourceConfig) -> Demand:
        return cls(
            milli_cpus=max(1, round(resources.cpus * 1000)),
            memory=resources.memory or 0,
            gpus=resources.gpus,
            gpu=resources.device.index if resources.device.kind == "cuda" else None,
            tpu=resources.device.kind == "tpu",
        )


ONE_CPU = Demand()
"""What a step takes that says nothing."""


@dataclass(slots=True)
class _Free:
    """What may be given away in one round: what nobody uses, less what waiting steps have reserved."""

    slots: int
    milli_cpus: int
    memory: int
    gpus: set[int]
    any_gpus: int  # how many of ``gpus``, any of them, are kept for somebody
    tpus: int

    def fits(self, demand: Demand) -> bool:
        return (
            self.slots > 0
            and demand.milli_cpus <= self.milli_cpus
            # Less than nothing is left where more is reserved than is free: no matter to who needs none of it.
            and (not demand.memory or demand.memory <= self.memory)
            and (not demand.gpus or demand.gpus <= len(self.gpus) - self.any_gpus)
            and (demand.gpu is None or demand.gpu in self.gpus)
            and (not demand.tpu or self.tpus > 0)
        )

    def take(self, demand: Demand, gpus: frozenset[int]) -> None:
        self.slots -= 1
        self.milli_cpus -= demand.milli_cpus
        self.memory -= demand.memory
        self.tpus -= demand.tpu
        self.gpus -= gpus

    def reserve(self, demand: Demand) -> None:
        self.take(demand, frozenset())
        if demand.gpu is not None:
            self.gpus.discard(demand.gpu)
        else:
            self.any_gpus += demand.gpus


@dataclass(slots=True)
class Round(Generic[K]):
    """One look at all that waits, from the oldest on: ``admit`` each of them in turn while ``is_open``."""

    _admission: Admission[K]
    _free: _Free

    @property
    def is_open(self) -> bool:
        """Whether anything can still be admitted: every step takes a slot and a part of a core."""
        return self._free.slots > 0 and self._free.milli_cpus > 0

    def admit(self, key: K, demand: Demand) -> bool:
        """Whether ``key`` may start now; it counts as running then. If not, what it needs is kept for it."""
        if not self._free.fits(demand):
            self._free.reserve(demand)
            return False
        chosen = [demand.gpu] if demand.gpu is not None else sorted(self._free.gpus)[: demand.gpus]
        gpus = frozenset(chosen) if demand.gpus else frozenset[int]()
        self._free.take(demand, gpus)
        self._admission.start(key, demand, gpus)
        return True


@dataclass(slots=True)
class Admission(Generic[K]):
    """Keeps what runs within ``capacity`` and below ``max_running`` at a time.

    >>> admission = Admission[str](Capacity(cpus=2))
    >>> [admission.begin_round().admit(name, ONE_CPU) for name in ("a", "b", "c")]
    [True, True, False]
    >>> admission.release("a")
    >>> admission.begin_round().admit("c", ONE_CPU)
    True
    """

    capacity: Capacity
    max_running: int = UNLIMITED
    _running: dict[K, tuple[Demand, frozenset[int]]] = field(
        default_factory=dict[K, tuple[Demand, frozenset[int]]], init=False
    )
    _milli_cpus: int = field(init=False)
    _memory: int = field(init=False)
    _gpus: set[int] = field(init=False)
    _tpus: int = field(init=False)

    def __post_init__(self) -> None:
        self._milli_cpus = round(self.capacity.cpus * 1000)
        self._memory = UNLIMITED if self.capacity.memory is None else self.capacity.memory
        self._gpus = set(range(self.capacity.gpus))
        self._tpus = int(self.capacity.tpu)

    def begin_round(self) -> Round[K]:
        """Begin to look at what waits. One round at a time."""
        free = _Free(
            slots=self.max_running - len(self._running),
            milli_cpus=self._milli_cpus,
            memory=self._memory,
            gpus=set(self._gpus),
            any_gpus=0,
            tpus=self._tpus,
        )
        return Round(self, free)

    def start(self, key: K, demand: Demand, gpus: frozenset[int]) -> None:
        """Count ``key`` as running, on the GPUs of these numbers. Called by ``Round``."""
        self._running[key] = demand, gpus
        self._milli_cpus -= demand.milli_cpus
        self._memory -= demand.memory
        self._gpus -= gpus
        self._tpus -= demand.tpu

    def release(self, key: K) -> None:
        """``key`` has ended. Nothing happens if it does not run."""
        if (ended := self._running.pop(key, None)) is None:
            return
        demand, gpus = ended
        self._milli_cpus += demand.milli_cpus
        self._memory += demand.memory
        self._gpus |= gpus
        self._tpus += demand.tpu

    def gpus_of(self, key: K) -> frozenset[int]:
        """The numbers of the GPUs that were chosen for ``key``; empty if it does not run."""
        return self._running[key][1] if key in self._running else frozenset()
