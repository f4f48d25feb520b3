from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.executors.capacity import ONE_CPU, UNLIMITED, Admission, Capacity, Demand
from marin.executors.resources import ResourceConfig

MACHINE = Capacity(cpus=4, memory=100, gpus=3, tpu=True)


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """What a machine like ``MACHINE`` can give."""
    gpus = draw(st.integers(0, 3))
    return Demand(
        milli_cpus=draw(st.integers(1, 4000)),
        memory=draw(st.integers(0, 100)),
        gpus=gpus,
        gpu=draw(st.none() | st.integers(0, 2)) if gpus == 1 else None,
        tpu=draw(st.booleans()),
    )


def admit(admission: Admission[int], waiting: deque[tuple[int, Demand]]) -> list[tuple[int, Demand]]:
    """One round over all that waits, as the run loop does it: what was admitted."""
    round_ = admission.begin_round()
    admitted: list[tuple[int, Demand]] = []
    passed_over: list[tuple[int, Demand]] = []
    while round_.is_open and waiting:
        step = waiting.popleft()
        (admitted if round_.admit(*step) else passed_over).append(step)
    waiting.extendleft(reversed(passed_over))
    return admitted


def check(running: dict[int, Demand], admission: Admission[int], limit: int) -> None:
    assert len(running) <= limit
    assert sum(demand.milli_cpus for demand in running.values()) <= 4000
    assert sum(demand.memory for demand in running.values()) <= 100
    assert sum(demand.tpu for demand in running.values()) <= 1
    used = [gpu for key in running for gpu in admission.gpus_of(key)]
    assert len(used) == len(set(used))
    for key, demand in running.items():
        assert len(admission.gpus_of(key)) == demand.gpus
        assert demand.gpu is None or admission.gpus_of(key) == {demand.gpu}


@given(st.lists(demands(), max_size=30), st.integers(1, 5) | st.just(UNLIMITED), st.randoms(use_true_random=False))
def test_never_more_than_there_is_and_everything_ends(steps: list[Demand], limit: int, random):
    admission = Admission[int](MACHINE, limit)
    waiting = deque(enumerate(steps))
    running: dict[int, Demand] = {}
    ended = 0
    while ended < len(steps):
        running.update(admit(admission, waiting))
        check(running, admission, limit)
        assert running, "nothing runs, though something waits"
        key = random.choice(sorted(running))
        del running[key]
        admission.release(key)
        ended += 1


@given(demands(), st.lists(demands(), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_a_step_does_not_starve_however_many_come_after_it(large: Demand, small: list[Demand], random):
    admission = Admission[int](MACHINE)
    running = dict(admit(admission, deque(enumerate(small))))
    waiting = deque([(-1, large)])
    arrivals = 0
    before = set(running)
    while -1 not in running:
        waiting.append((1000 + arrivals, random.choice(small)))
        arrivals += 1
        running.update(admit(admission, waiting))
        # Once all that ran when it came has ended, nothing that came later may stand in its way.
        if not before and -1 not in running:
            pytest.fail("overtaken by steps that came later, in what it waits for")
        if before:
            key = before.pop()
        elif running and -1 not in running:
            key = random.choice(sorted(running))
        else:
            continue
        running.pop(key)
        admission.release(key)


def test_small_steps_go_on_beside_one_that_waits_for_a_gpu():
    admission = Admission[str](Capacity(cpus=4, gpus=1))
    assert admission.begin_round().admit("first training", Demand(gpus=1))
    round_ = admission.begin_round()
    assert not round_.admit("second training", Demand(gpus=1))
    assert round_.admit("tokenize", ONE_CPU)
    assert not round_.admit("third training", Demand(gpus=1))


def test_who_needs_no_memory_does_not_wait_with_who_does():
    admission = Admission[str](Capacity(cpus=8, memory=10))
    assert admission.begin_round().admit("a", Demand(memory=8))
    round_ = admission.begin_round()
    assert not round_.admit("b", Demand(memory=8))
    assert not round_.admit("c", Demand(memory=1))
    assert round_.admit("d", ONE_CPU)


def test_what_a_waiting_step_needs_is_kept_for_it():
    admission = Admission[str](Capacity(cpus=4))
    for name in ("a", "b"):
        assert admission.begin_round().admit(name, ONE_CPU)
    round_ = admission.begin_round()
    assert not round_.admit("all cores", Demand(milli_cpus=4000))
    assert not round_.is_open
    admission.release("a")
    admission.release("b")
    assert admission.begin_round().admit("all cores", Demand(milli_cpus=4000))


def test_a_step_that_wants_a_certain_gpu_gets_that_one():
    admission = Admission[str](Capacity(cpus=8, gpus=2))
    assert admission.begin_round().admit("second", Demand(gpus=1, gpu=1))
    assert admission.begin_round().admit("any", Demand(gpus=1))
    assert (admission.gpus_of("second"), admission.gpus_of("any")) == ({1}, {0})


def test_ten_tenths_of_a_core_are_a_core():
    admission = Admission[int](Capacity(cpus=1))
    tenth = Demand.of(ResourceConfig(cpus=0.1))
    assert all(admission.begin_round().admit(number, tenth) for number in range(10))
    assert not admission.begin_round().is_open


def test_what_ended_twice_is_given_back_once():
    admission = Admission[str](Capacity(cpus=1))
    admission.begin_round().admit("a", ONE_CPU)
    admission.release("a")
    admission.release("a")
    assert [admission.begin_round().admit(name, ONE_CPU) for name in "bc"] == [True, False]


def test_a_config_becomes_what_is_counted():
    demand = Demand.of(ResourceConfig(device="cuda:1", cpus=2.5, memory="1kB"))
    assert demand == Demand(milli_cpus=2500, memory=1000, gpus=1, gpu=1)
    assert Demand.of(ResourceConfig()) == ONE_CPU
    assert Demand.of(ResourceConfig.with_tpu("v5p-8")).tpu
