"""The GPUs and TPUs of this machine, and how a job gets one to itself.

A device is taken by a lock (``flock``) on a folder of its own, below ``/tmp/marin-{user id}/devices``: so two runs on
one host never use it at the same time. The kernel lets go of it when the last process that holds it ends, however it
ends: the run, and the guard of the job. Other users of the host, and containers with another ``/tmp``, don't see it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import stat
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from marin.errors import DeviceNotFoundError, StepError
from marin.executors.executor import Busy, Claim
from marin.executors.resources import ResourceConfig

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
_ORDER_VARIABLE = "CUDA_DEVICE_ORDER"

GPUS_VARIABLE = "MARIN_GPUS"
"""Tells a job the numbers, as the run counts them, of the GPUs that it sees as 0, 1, ...: joined by commas."""

HELD_VARIABLE = "MARIN_HELD_DEVICES"
"""Tells a job which locks are held for it, so that a run that it starts itself does not wait for them."""

_HOLDER = "holder"


@dataclass(frozen=True)
class _Gpu:
    """``name``: what CUDA_VISIBLE_DEVICES calls it; ``lock``: what all processes of this user call it."""

    name: str
    lock: str


class LocalDevices:
    """What is in this machine, as the files below ``devices`` and ``proc`` and the variables of ``environ`` tell."""

    def __init__(self, *, devices: Path, proc: Path, environ: Mapping[str, str], locks: Path) -> None:
        self._devices = devices
        self._gpu_folders = proc / "driver" / "nvidia" / "gpus"
        self._environ = environ
        self._locks = locks

    def count_gpus(self) -> int:
        """How many GPUs this process may use."""
        return len(self._gpus())

    def count_tpu_chips(self) -> int:
        old = sum(bool(re.fullmatch(r"accel\d+", name)) for name in _names(self._devices))
        return old or sum(name.isdigit() for name in _names(self._devices / "vfio"))

    def check(self, resources: ResourceConfig) -> None:
        """Raise ``DeviceNotFoundError`` unless the devices are there, whoever uses them."""
        device = resources.device
        if device.kind == "cpu":
            return
        count = self.count_gpus() if device.kind == "cuda" else self.count_tpu_chips()
        if count == 0:
            hidden = self._environ.get(VISIBLE_VARIABLE) if device.kind == "cuda" else None
            why = "" if hidden is None else f" ({VISIBLE_VARIABLE}={hidden!r} hides them)"
            raise DeviceNotFoundError(
                f"{device}: no such device in this machine{why}. Use resources='cpu', or run it where one is"
            )
        if device.index is not None and device.index >= count:
            known = ", ".join(f"{device.kind}:{index}" for index in range(count))
            raise DeviceNotFoundError(f"{device}: this machine has only {known}")
        if device.kind == "cuda":
            self._check_type(resources.accelerator)

    def claim(self, resources: ResourceConfig, preferred: Iterable[int]) -> Claim | Busy:
        """The devices, for one job alone; ``preferred`` GPUs first. ``Busy`` if others have them at the moment."""
        kind = resources.device.kind
        if kind == "cpu":
            return Claim()
        if kind == "tpu":
            taken, holder = self._take(["tpu"], 1)
            if taken is None:
                return Busy(device="the TPU", holder=holder)
            return Claim(env={HELD_VARIABLE: self._held_names(taken)}, descriptors=_to_hold(taken))
        gpus = self._gpus()
        wanted = _order(len(gpus), resources.device.index, preferred)
        taken, holder = self._take([gpus[index].lock for index in wanted], resources.gpus)
        if taken is None:
            what = str(resources.device) if resources.gpus == 1 else f"{resources.gpus} GPUs"
            return Busy(device=what, holder=holder)
        chosen = sorted(index for index in wanted if gpus[index].lock in taken)
        env = {
            VISIBLE_VARIABLE: ",".join(gpus[index].name for index in chosen),
            GPUS_VARIABLE: ",".join(map(str, chosen)),
            HELD_VARIABLE: self._held_names(taken),
        }
        if VISIBLE_VARIABLE not in self._environ and _ORDER_VARIABLE not in self._environ:
            env[_ORDER_VARIABLE] = "PCI_BUS_ID"  # else CUDA may count in another order in another process
        return Claim(env=env, descriptors=_to_hold(taken))

    def _gpus(self) -> list[_Gpu]:
        present = sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in _names(self._devices))
        visible = self._environ.get(VISIBLE_VARIABLE)
        if present == 0 or visible is None:
            return [_Gpu(str(index), f"cuda-{index}") for index in range(present)]
        # CUDA ignores what follows a negative index. Ids of GPUs and of slices of them are counted as they are.
        names = [name.strip() for name in visible.split(",")]
        shown = itertools.takewhile(lambda name: name != "" and not name.startswith("-"), names)
        return [_Gpu(name, self._lock_name(name)) for name in shown]

    def _lock_name(self, name: str) -> str:
        """One name for a GPU, whether it is called by its number or by its id, which may be shortened."""
        if name.isdigit():
            return f"cuda-{int(name)}"
        if name.startswith("GPU-"):
            for index, facts in enumerate(self._facts()):
                if facts.get("GPU UUID", "").startswith(name):
                    return f"cuda-{index}"
        return "cuda-" + re.sub(r"[^\w.-]", "_", name)

    def _facts(self) -> list[dict[str, str]]:
        """What the driver tells of each GPU, in the order of the bus."""
        found: list[dict[str, str]] = []
        for name in sorted(_names(self._gpu_folders)):
            with contextlib.suppress(OSError):
                lines = (self._gpu_folders / name / "information").read_text(errors="replace").splitlines()
                found.append({key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)})
        return found

    def _check_type(self, accelerator: str | None) -> None:
        models = sorted({facts["Model"] for facts in self._facts() if facts.get("Model")})
        if accelerator is None or not models or any(_bare(accelerator) in _bare(model) for model in models):
            return
        raise DeviceNotFoundError(
            f"accelerator={accelerator!r}: this machine has {', '.join(models)}. Leave the type out, or run elsewhere"
        )

    def _held_names(self, names: Iterable[str]) -> str:
        return ",".join(sorted({*names, *self._inherited()}))

    def _inherited(self) -> set[str]:
        return {name for name in self._environ.get(HELD_VARIABLE, "").split(",") if name}

    def _take(self, names: Iterable[str], count: int) -> tuple[dict[str, int] | None, str]:
        """Lock ``count`` of ``names``, all or none: their descriptors (-1: held for us by whoever started us).

        Never waits for one while it holds another: two jobs that need two GPUs each can't stop each other for ever.
        """
        taken: dict[str, int] = {}
        holder = ""
        inherited = self._inherited()
        for name in names:
            if len(taken) == count:
                break
            if name in inherited:
                taken[name] = -1
            elif (descriptor := self._lock(name)) is not None:
                taken[name] = descriptor
            else:
                holder = holder or self._holder(name)
        if len(taken) == count:
            return taken, ""
        Claim(descriptors=_to_hold(taken)).release()
        return None, holder

    def _lock(self, name: str) -> int | None:
        folder = self._folder() / name
        with self._told(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            # A folder, not a file: what tidies /tmp leaves folders alone that are locked.
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                    raise BlockingIOError  # it was removed meanwhile: another one may be locked by somebody else
                (folder / _HOLDER).write_text(str(os.getpid()))
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

    def _holder(self, name: str) -> str:
        with contextlib.suppress(OSError):
            text = (self._folder() / name / _HOLDER).read_text()
            if text.isdigit():
                return f"pid {text}"
        return "another process"

    def _folder(self) -> Path:
        """Ours alone: what others could write there would let them hold up our jobs."""
        with self._told(self._locks):
            for folder in (self._locks.parent, self._locks):
                folder.mkdir(mode=0o700, exist_ok=True)
                status = folder.lstat()
                if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                    raise StepError(f"{folder} is not a folder of this user: remove it, it is where devices are locked")
        return self._locks

    @contextlib.contextmanager
    def _told(self, place: Path) -> Generator[None]:
        try:
            yield
        except OSError as fault:
            raise StepError(f"{place}, where devices are locked, can't be used: {fault.strerror}") from fault


def default_locks() -> Path:
    """Where the processes of this user lock devices. Not below TMPDIR, which differs from job to job."""
    return Path("/tmp") / f"marin-{os.getuid()}" / "devices"


def _to_hold(taken: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(descriptor for descriptor in taken.values() if descriptor >= 0)


def _order(count: int, index: int | None, preferred: Iterable[int]) -> list[int]:
    if index is not None:
        return [index]
    first = [number for number in preferred if number < count]
    return [*first, *(number for number in range(count) if number not in first)]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
