"""How large this machine is for us: what the kernel lets this process use, which in a container is less than there is.

Control groups count, of the first version and of the second, also those above ours.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
MEMINFO = Path("/proc/meminfo")

_NO_LIMIT = 1 << 60
"""The first version of control groups writes a huge number where there is no limit."""


def count_cpus(*, cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """How many cores this process may use: those that it may run on, within its quota of time, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = list(_cpu_quotas(cgroups, own))
    return max(1, min([allowed, *(math.ceil(quota) for quota in quotas)]))


def count_memory(*, cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS, meminfo: Path = MEMINFO) -> int | None:
    """How many bytes of memory this process and others may use together; None if the system does not tell."""
    limits = [limit for limit in _memory_limits(cgroups, own) if 0 < limit < _NO_LIMIT]
    for line in _text(meminfo).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal" and (words := rest.split()) and words[0].isdecimal():
            limits.append(int(words[0]) * 1024)
    return min(limits, default=None)


def _cpu_quotas(cgroups: Path, own: Path) -> Iterator[float]:
    for folder, version in _own_folders(cgroups, own, "cpu"):
        if version == 2:
            words = _text(folder / "cpu.max").split()
        else:
            words = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]) > 0:
            yield int(words[0]) / int(words[1])


def _memory_limits(cgroups: Path, own: Path) -> Iterator[int]:
    for folder, version in _own_folders(cgroups, own, "memory"):
        text = _text(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).strip()
        if text.isdecimal():
            yield int(text)


def _own_folders(cgroups: Path, own: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Where our group and those above it have their files, and which version of control groups that is."""
    for line in _text(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            root, version = cgroups, 2
        elif controller in controllers.split(","):
            root, version = cgroups / controller, 1
        else:
            continue
        # Within a container the group may be told as it is called outside: then only the root is there.
        parts = [part for part in group.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield root.joinpath(*parts[:depth]), version


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
