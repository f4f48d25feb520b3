"""A run keeps to what the machine has: real steps, a machine whose size and devices are made up."""

import threading
from dataclasses import replace

import pytest

from marin.errors import DeviceNotFoundError, NotEnoughResourcesError, RefusedError
from marin.execution import ArtifactStep, remote
from marin.execution.runner import plan, run
from marin.executors.capacity import Capacity
from marin.executors.executor import Busy
from marin.executors.local import LocalExecutor
from marin.executors.resources import ResourceConfig
from tests.execution.pipelines import poems
from tests.execution.remote_steps import Count, see
from tests.executors.processes import PATIENCE

GPU = ResourceConfig.with_gpu()


@pytest.fixture
def machine(tmp_path):
    def make(*, cpus=64.0, gpus=0, memory=None, environ=None):
        devices = tmp_path / "dev"
        devices.mkdir(exist_ok=True)
        for index in range(gpus):
            (devices / f"nvidia{index}").touch()
        capacity = Capacity(cpus=cpus, memory=memory, gpus=gpus)
        locks = tmp_path / "user" / "locks"
        return LocalExecutor(devices=devices, environ=environ or {}, locks=locks, capacity=capacity)

    return make


class Together:
    """Counts how many steps run at the same time. Each waits until no more can be expected."""

    def __init__(self):
        self.expected = self.most = self.now = 0
        self.changed = threading.Condition()

    def meet(self):
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.most >= self.expected, timeout=PATIENCE)
            self.now -= 1


TOGETHER = Together()


def meet(config):
    TOGETHER.meet()


@pytest.fixture
def most_at_a_time(options):
    """Run so many steps: the most that ran at the same time. ``expected``: they wait for so many."""

    def count(steps, executor, *, expected, max_concurrent=None):
        TOGETHER.__init__()
        TOGETHER.expected = expected
        handles = [ArtifactStep(name=f"raw/{number}", version="2026.07.01", run=meet) for number in range(steps)]
        run(*handles, options=replace(options, max_concurrent=max_concurrent), executor=executor)
        return TOGETHER.most

    return count


def test_steps_in_threads_take_a_core_each(most_at_a_time, machine):
    assert most_at_a_time(7, machine(cpus=3), expected=3) == 3


def test_fewer_steps_at_a_time_can_be_asked_for(most_at_a_time, machine):
    assert most_at_a_time(5, machine(cpus=9), expected=2, max_concurrent=2) == 2


def test_more_steps_at_a_time_than_cores_can_be_asked_for(most_at_a_time, machine):
    assert most_at_a_time(6, machine(cpus=1), expected=4, max_concurrent=4) == 4


class Watched:
    """Passes claims on, and remembers how many were held at the same time, and what they gave."""

    def __init__(self, executor):
        self.executor = executor
        self.envs = []

    def __getattr__(self, name):
        return getattr(self.executor, name)

    def claim(self, resources, preferred=()):
        claim = self.executor.claim(resources, preferred)
        self.envs.append(None if isinstance(claim, Busy) else claim.env.get("CUDA_VISIBLE_DEVICES"))
        return claim


def environment(number, resources=GPU):
    return ArtifactStep(
        name=f"raw/{number}",
        version="2026.07.01",
        run=remote(see, resources=resources),
        artifact_type=Count,
        build_config=lambda ctx: "environment",
    )


def test_a_gpu_step_sees_its_gpu_and_no_other(options, machine):
    (seen,) = run(environment(1, ResourceConfig(device="cuda:1")), options=options, executor=machine(gpus=2))
    assert "'CUDA_VISIBLE_DEVICES': '1'" in seen.seen


def test_two_steps_never_have_one_gpu_and_do_not_even_ask_for_it(options, machine):
    executor = Watched(machine(gpus=1))
    run(*(environment(number) for number in range(3)), options=options, executor=executor)
    assert executor.envs == ["0", "0", "0"]  # never told that it was busy


def test_a_gpu_that_another_run_uses_is_waited_for_and_that_is_told(options, machine, told):
    executor = machine(gpus=1)
    held = executor.claim(GPU)
    told.noted = lambda id_, note: (notes.append(note), held.release() if len(notes) == 1 else None)
    notes = []
    run(environment(1), options=options, reporter=told, executor=executor)
    assert notes[0].startswith("waits for cuda, which pid ")


def test_a_step_that_asks_for_too_much_is_refused_before_anything_runs(options, machine, built):
    large = environment(1, ResourceConfig(cpus=8, memory="1TB"))
    with pytest.raises(
        NotEnoughResourcesError, match=r"raw/1@2026\.07\.01: asks for cpus=8, and .* has 4; memory=1 TB"
    ):
        run(poems(), large, options=options, executor=machine(cpus=4, memory=10**9))
    assert built == []


def test_all_that_ask_for_too_much_are_listed(options, machine):
    steps = environment(1, ResourceConfig(cpus=8)), environment(2, ResourceConfig(device="cuda:3"))
    with pytest.raises(
        RefusedError, match=r"(?s)2 steps.*raw/1@.*cpus=8.*raw/2@.*cuda:3: this machine has only cuda:0"
    ):
        run(*steps, options=options, executor=machine(cpus=4, gpus=1))


def test_a_missing_device_is_told_with_the_step_that_wants_it(options, machine):
    with pytest.raises(DeviceNotFoundError, match=r"raw/1@2026\.07\.01: cuda: no such device"):
        run(environment(1), options=options, executor=machine())


def test_room_on_the_disk_is_asked_for_before_anything_runs(options, machine, built):
    with pytest.raises(NotEnoughResourcesError, match=r"raw/1@.* asks for disk=1e\+03 PB|disk=1,000 PB.*are missing"):
        run(poems(), environment(1, ResourceConfig(disk="1000PB")), options=options, executor=machine())
    assert built == []


def test_resources_are_not_identity(options):
    plain = environment(1, ResourceConfig())
    large = environment(1, ResourceConfig.with_gpu("H100", count=8, cpus=100, memory="1TB", disk="1TB", time="2h"))
    assert plain.fingerprint() == large.fingerprint()
    assert [step.id for step in plan(large, options=options).to_make] == [large.id]
