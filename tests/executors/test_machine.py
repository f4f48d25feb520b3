from __future__ import annotations

import os
from pathlib import Path

import pytest

from marin.executors.machine import count_cpus, count_memory

ALL = len(os.sched_getaffinity(0))


@pytest.fixture
def write(tmp_path: Path):
    def write_file(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write_file("meminfo", "MemTotal:       8 kB\nMemFree:       1 kB\n")
    return write_file


def size(folder: Path) -> tuple[int, int | None]:
    cgroups, own = folder / "cgroup", folder / "own"
    memory = count_memory(cgroups=cgroups, own=own, meminfo=folder / "meminfo")
    return count_cpus(cgroups=cgroups, own=own), memory


def test_without_control_groups_it_is_the_whole_machine(tmp_path: Path, write):
    assert size(tmp_path) == (ALL, 8192)


def test_the_limits_of_the_second_version_count(tmp_path: Path, write):
    write("own", "0::/user/anna\n")
    write("cgroup/user/anna/cpu.max", "50000 100000\n")
    write("cgroup/user/anna/memory.max", "4096\n")
    assert size(tmp_path) == (1, 4096)


def test_the_limits_of_a_group_above_count_too(tmp_path: Path, write):
    write("own", "0::/user/anna\n")
    write("cgroup/user/anna/cpu.max", "max 100000\n")
    write("cgroup/user/anna/memory.max", "max\n")
    write("cgroup/user/cpu.max", "100000 100000\n")
    write("cgroup/memory.max", "5000\n")
    assert size(tmp_path) == (1, 5000)


def test_the_limits_of_the_first_version_count(tmp_path: Path, write):
    write("own", "4:memory:/docker/7\n1:cpu,cpuacct:/docker/7\n")
    # In a container its own group lies at the root.
    write("cgroup/cpu/cpu.cfs_quota_us", "20000\n")
    write("cgroup/cpu/cpu.cfs_period_us", "100000\n")
    write("cgroup/memory/memory.limit_in_bytes", "6000\n")
    assert size(tmp_path) == (1, 6000)


def test_no_limit_is_no_limit(tmp_path: Path, write):
    write("own", "4:memory:/\n1:cpu:/\n")
    write("cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    write("cgroup/cpu/cpu.cfs_period_us", "100000\n")
    write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert size(tmp_path) == (ALL, 8192)


def test_a_generous_quota_gives_no_more_cores_than_there_are(tmp_path: Path, write):
    write("own", "0::/\n")
    write("cgroup/cpu.max", "99900000 100000\n")
    assert size(tmp_path)[0] == ALL


def test_nonsense_is_no_limit(tmp_path: Path, write):
    write("own", "0::/\nnonsense\n")
    write("cgroup/cpu.max", "\xff 0\n")
    write("cgroup/memory.max", "\n")
    (tmp_path / "meminfo").unlink()
    assert size(tmp_path) == (ALL, None)
