"""GPUs and TPUs, faked by their device files: what is told of them, and who gets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from marin.errors import DeviceNotFoundError, NotEnoughResourcesError, StepError
from marin.executors.capacity import Capacity
from marin.executors.executor import Busy, Claim, JobSpec
from marin.executors.local import LocalExecutor
from marin.executors.resources import ResourceConfig
from tests.executors.processes import PATIENCE, eventually

Machine = Callable[..., LocalExecutor]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Makes an executor on a machine with so many GPUs. All of one test are on the same machine."""

    def make(gpus: int, **environ: str) -> LocalExecutor:
        devices = tmp_path / "dev"
        devices.mkdir(exist_ok=True)
        for index in range(gpus):
            (devices / f"nvidia{index}").touch()
        return LocalExecutor(devices=devices, proc=tmp_path / "proc", environ=environ, locks=tmp_path / "u" / "locks")

    return make


def describe_gpus(folder: Path, *uuids: str, model: str = "NVIDIA H100 80GB HBM3") -> None:
    for number, uuid in enumerate(uuids):
        place = folder / "proc" / "driver" / "nvidia" / "gpus" / f"0000:0{number}:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text(f"Model: \t\t {model}\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")


def taken(claim: Claim | Busy) -> Claim:
    assert isinstance(claim, Claim)
    return claim


ONE = ResourceConfig.with_gpu()


def test_a_cpu_step_takes_no_device(machine: Machine):
    assert machine(1).claim(ResourceConfig()) == Claim()


def test_each_claim_gets_a_gpu_of_its_own(machine: Machine):
    executor = machine(2)
    first, second = taken(executor.claim(ONE)), taken(executor.claim(ONE))
    assert [claim.env["CUDA_VISIBLE_DEVICES"] for claim in (first, second)] == ["0", "1"]
    assert executor.claim(ONE) == Busy(device="cuda", holder=f"pid {os.getpid()}")
    first.release()
    third = taken(executor.claim(ONE))
    assert third.env["MARIN_GPUS"] == "0"
    second.release()
    third.release()


def test_a_certain_gpu_is_given_to_one_at_a_time(machine: Machine):
    executor = machine(2)
    first = taken(executor.claim(ResourceConfig(device="cuda:1")))
    assert first.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert executor.claim(ResourceConfig(device="cuda:1")) == Busy(device="cuda:1", holder=f"pid {os.getpid()}")
    first.release()


def test_preferred_gpus_come_first(machine: Machine):
    claim = taken(machine(4).claim(ONE, preferred=[2]))
    assert claim.env["CUDA_VISIBLE_DEVICES"] == "2"
    claim.release()


def test_of_several_gpus_all_are_taken_or_none(machine: Machine):
    executor = machine(3)
    first = taken(executor.claim(ResourceConfig(gpus=2)))
    assert first.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert isinstance(executor.claim(ResourceConfig(gpus=2)), Busy)
    last = taken(executor.claim(ONE))  # nothing was kept by the claim that failed
    first.release()
    last.release()


def test_only_gpus_that_are_visible_to_the_run_are_given(machine: Machine):
    executor = machine(4, CUDA_VISIBLE_DEVICES="3,1")
    claims = [taken(executor.claim(ONE)) for _ in range(2)]
    assert [claim.env["CUDA_VISIBLE_DEVICES"] for claim in claims] == ["3", "1"]
    assert [claim.env["MARIN_GPUS"] for claim in claims] == ["0", "1"]
    assert all("CUDA_DEVICE_ORDER" not in claim.env for claim in claims)  # it numbers them as the run does
    for claim in claims:
        claim.release()


def test_numbers_mean_the_same_in_every_process(machine: Machine):
    claim = taken(machine(1).claim(ONE))
    assert claim.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    claim.release()


@pytest.mark.parametrize("name", ["GPU-22", "GPU-2222-bbbb"])
def test_a_gpu_is_one_whether_it_is_called_by_number_or_by_id(machine: Machine, tmp_path: Path, name: str):
    describe_gpus(tmp_path, "GPU-1111-aaaa", "GPU-2222-bbbb")
    by_id = taken(machine(2, CUDA_VISIBLE_DEVICES=name).claim(ONE))
    assert by_id.env["CUDA_VISIBLE_DEVICES"] == name
    assert isinstance(machine(2).claim(ResourceConfig(device="cuda:1")), Busy)
    taken(machine(2).claim(ResourceConfig(device="cuda:0"))).release()
    by_id.release()


def test_slices_of_a_gpu_are_devices_of_their_own(machine: Machine):
    executor = machine(1, CUDA_VISIBLE_DEVICES="MIG-a/1,MIG-b")
    claims = [taken(executor.claim(ONE)) for _ in range(2)]
    assert [claim.env["CUDA_VISIBLE_DEVICES"] for claim in claims] == ["MIG-a/1", "MIG-b"]
    for claim in claims:
        claim.release()


def test_a_tpu_is_taken_as_a_whole(machine: Machine, tmp_path: Path):
    executor = machine(0)
    for chip in range(4):
        (tmp_path / "dev" / f"accel{chip}").touch()
    first = taken(executor.claim(ResourceConfig.with_tpu()))
    assert executor.claim(ResourceConfig.with_tpu("v4-8")) == Busy(device="the TPU", holder=f"pid {os.getpid()}")
    first.release()


def test_a_run_inside_a_step_uses_the_gpu_that_the_step_has(machine: Machine):
    outer = taken(machine(2).claim(ResourceConfig(device="cuda:1")))
    inner = taken(machine(2, **outer.env).claim(ResourceConfig(device="cuda:0")))
    assert inner.env["CUDA_VISIBLE_DEVICES"] == "1"
    inner.release()
    assert isinstance(machine(2).claim(ResourceConfig(device="cuda:1")), Busy)
    outer.release()


HOLD = """
import sys, time
from pathlib import Path
from marin.executors.executor import JobSpec
from marin.executors.local import LocalExecutor
from marin.executors.resources import ResourceConfig

folder = Path(sys.argv[1])
executor = LocalExecutor(devices=folder / "dev", proc=folder / "proc", environ={}, locks=folder / "u" / "locks")
claim = executor.claim(ResourceConfig.with_gpu())
job = executor.submit(JobSpec(name="poems", argv=("sleep", "1000"), env={"PATH": sys.argv[2]}, cwd=str(folder),
                              log_path=str(folder / "log"), lease_seconds=3600, claim=claim))
(folder / "held").write_text(job.partition("-")[0])
time.sleep(1000)
"""


@pytest.fixture
def other_run(tmp_path: Path, machine: Machine):
    """A run in a process of its own, on the same machine, whose job has the first GPU; and the pid of its guard."""
    machine(1)
    with (tmp_path / "out").open("w") as out:
        run = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path, os.environ["PATH"]], stdout=out, stderr=out)
    try:
        eventually(lambda: (tmp_path / "held").exists() and (tmp_path / "held").read_text())
        yield run, int((tmp_path / "held").read_text())
    finally:
        run.kill()
        run.wait()


def test_two_runs_never_use_one_gpu(machine: Machine, other_run):
    run, _ = other_run
    assert machine(1).claim(ONE) == Busy(device="cuda", holder=f"pid {run.pid}")


def test_a_killed_run_lets_go_once_its_job_has_ended(machine: Machine, other_run):
    run, guard = other_run
    os.kill(guard, signal.SIGSTOP)  # its job lives on for as long
    run.kill()
    run.wait()
    assert isinstance(machine(1).claim(ONE), Busy)
    os.kill(guard, signal.SIGCONT)
    claims: list[Claim | Busy] = []
    eventually(lambda: isinstance(claims.append(machine(1).claim(ONE)) or claims[-1], Claim))
    taken(claims[-1]).release()


def test_a_job_does_not_get_the_lock(machine: Machine, tmp_path: Path):
    executor = machine(1)
    claim = taken(executor.claim(ONE))
    spec = JobSpec(
        name="poems",
        argv=("ls", "/proc/self/fd"),
        env={"PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
        log_path=str(tmp_path / "log"),
        lease_seconds=3600,
        claim=claim,
    )
    executor.wait(executor.submit(spec), PATIENCE)
    claim.release()
    assert (tmp_path / "log").read_text().split() == ["0", "1", "2", "3"]


def test_a_lock_folder_of_somebody_else_is_refused(machine: Machine, tmp_path: Path):
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "locks").symlink_to(tmp_path)
    with pytest.raises(StepError, match="locks is not a folder of this user: remove it"):
        machine(1).claim(ONE)


def test_a_lock_that_can_not_be_written_is_named(machine: Machine, tmp_path: Path):
    (tmp_path / "u").write_text("a file")
    with pytest.raises(StepError, match=r"/u.* can't be used: File exists"):
        machine(1).claim(ONE)


def test_another_type_of_gpu_is_refused_where_the_driver_tells(machine: Machine, tmp_path: Path):
    executor = machine(1)
    executor.preflight(ResourceConfig.with_gpu("A100"))  # nothing tells: it may be one
    describe_gpus(tmp_path, "GPU-1")
    executor.preflight(ResourceConfig.with_gpu("h100"))
    executor.preflight(ResourceConfig.with_gpu("H100-80GB"))
    with pytest.raises(DeviceNotFoundError, match="accelerator='A100': this machine has NVIDIA H100 80GB HBM3"):
        executor.preflight(ResourceConfig.with_gpu("A100"))


def test_more_than_there_is_is_refused_with_all_that_is_lacking(tmp_path: Path):
    executor = LocalExecutor(devices=tmp_path, environ={}, capacity=Capacity(cpus=2, memory=8 * 10**9, gpus=0))
    executor.preflight(ResourceConfig(cpus=2, memory="8GB"))
    with pytest.raises(NotEnoughResourcesError) as refused:
        executor.preflight(ResourceConfig(cpus=2.5, memory="16GB"))
    assert "cpus=2.5, and this machine has 2; memory=16 GB, and this machine has 8 GB. Ask for" in str(refused.value)


def test_more_gpus_than_there_are_are_refused(machine: Machine):
    with pytest.raises(NotEnoughResourcesError, match="gpus=3, and this machine has 2"):
        machine(2).preflight(ResourceConfig.with_gpu(count=3))


def test_the_machine_is_measured_if_nobody_says_how_large_it_is(machine: Machine):
    capacity = machine(2).capacity()
    assert capacity.cpus >= 1
    assert (capacity.gpus, capacity.tpu) == (2, False)
