"""Learning rates: the table entry by entry, then the laws with random schedules."""

import math
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from marin.training import defaults
from marin.training.schedules import SCHEDULES, Phases, learning_rate, phases, phases_text

PEAK = 0.01


def rates(num_steps, schedule, *, warmup=0, decay=None, min_lr_ratio=0.1, lr=PEAK):
    return [
        learning_rate(step, num_steps, lr=lr, schedule=schedule, warmup=warmup, decay=decay, min_lr_ratio=min_lr_ratio)
        for step in range(num_steps)
    ]


@pytest.mark.parametrize(
    ("schedule", "decay", "of_the_peak"),
    [
        ("constant", None, {50: 1, 425: 1, 800: 1, 801: 1, 900: 1, 1000: 1}),
        ("linear", None, {50: 1, 51: 1 - 0.9 / 950, 525: 0.55, 1000: 0.1}),
        ("linear", 200, {50: 1, 425: 1, 800: 1, 801: 1 - 0.9 / 200, 900: 0.55, 1000: 0.1}),
        ("cosine", None, {50: 1, 525: 0.55, 1000: 0.1, 287: 0.1 + 0.45 * (1 + math.cos(math.pi * 237 / 950))}),
        ("cosine", 200, {50: 1, 800: 1, 850: 0.1 + 0.45 * (1 + math.cos(math.pi / 4)), 900: 0.55, 1000: 0.1}),
        ("wsd", 200, {50: 1, 425: 1, 800: 1, 801: 1 - 0.9 / 200, 900: 0.55, 1000: 0.1}),
        ("inv_sqrt", None, {50: 1, 203: 0.5, 815: 0.25, 1000: math.sqrt(51 / 1001)}),
        ("inv_sqrt", 200, {50: 1, 203: 0.5, 800: math.sqrt(51 / 801), 900: (math.sqrt(51 / 801) + 0.1) / 2, 1000: 0.1}),
    ],
)
def test_the_table_of_rates(schedule, decay, of_the_peak):
    rate = rates(1001, schedule, warmup=50, decay=decay)
    expected = {0: 1 / 51, 9: 10 / 51, 49: 50 / 51, **of_the_peak}
    assert {step: rate[step] / PEAK for step in expected} == pytest.approx(expected, rel=1e-12)
    assert rate[50] == PEAK


@pytest.mark.parametrize(("schedule", "decay"), [(name, None) for name in SCHEDULES] + [("wsd", 200), ("cosine", 200)])
def test_parts_are_the_same_as_steps(schedule, decay):
    steps = rates(1000, schedule, warmup=50, decay=decay)
    assert steps == rates(1000, schedule, warmup=0.05, decay=decay and decay / 1000)


def test_a_part_is_what_its_author_wrote():
    # As binary fractions they are 28.999... and 56.999...
    assert phases("wsd", 100, warmup=0.29, decay=0.57) == Phases(peak=29, decay_start=42, last=99)


def test_wsd_decays_in_a_part_of_the_training_that_is_no_choice_of_its_author():
    assert rates(1000, "wsd") == rates(1000, "wsd", decay=defaults.WSD_DECAY) == rates(1000, "linear", decay=200)


@pytest.mark.parametrize(
    ("num_steps", "warmup", "decay", "expected"),
    [
        (100, 50, 200, Phases(peak=50, decay_start=50, last=99)),  # the decay has what the warm-up leaves
        (100, 0.5, 0.5, Phases(peak=50, decay_start=50, last=99)),
        (100, 99, 10, Phases(peak=99, decay_start=99, last=99)),  # the last step is at the peak
        (100, 500, 10, Phases(peak=100, decay_start=99, last=99)),  # the peak is not reached
        (100, 0, 500, Phases(peak=0, decay_start=0, last=99)),
        (4, 0, 0.01, Phases(peak=0, decay_start=2, last=3)),  # of a decay at least one step is left
        (2, 0, 0.2, Phases(peak=0, decay_start=0, last=1)),
        (1, 0, 0.2, Phases(peak=0, decay_start=0, last=0)),
        (1, 1, 1, Phases(peak=1, decay_start=0, last=0)),
        (1, 0.9, 0.1, Phases(peak=0, decay_start=0, last=0)),
    ],
)
def test_a_training_that_is_too_short_for_both(num_steps, warmup, decay, expected):
    assert phases("wsd", num_steps, warmup=warmup, decay=decay) == expected


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_training_of_one_step_has_the_peak(schedule):
    assert rates(1, schedule, warmup=0.05) == [PEAK]
    assert rates(1, schedule, warmup=10) == [PEAK / 2]


@pytest.mark.parametrize(
    ("schedule", "num_steps", "warmup", "decay", "text"),
    [
        ("constant", 10, 0, None, "constant: 10 steps at the peak"),
        ("cosine", 1, 0.05, None, "cosine: 1 step at the peak"),
        ("cosine", 20_000, 0.05, None, "cosine: 1,000 steps of warm-up, 1 at the peak, 18,999 of decay"),
        ("inv_sqrt", 100, 9, 10, "inv_sqrt: 9 steps of warm-up, 81 that fall with 1/sqrt(step), 10 of decay"),
        (
            "wsd",
            10,
            500,
            20,
            "wsd: 10 steps of warm-up (500 were asked for; the training is too short), "
            "0 of decay (20 were asked for; the training is too short)",
        ),
    ],
)
def test_the_phases_are_told(schedule, num_steps, warmup, decay, text):
    assert phases_text(schedule, num_steps, warmup=warmup, decay=decay) == text


amounts = st.one_of(st.integers(0, 3000), st.floats(0, 1, exclude_max=True))


@st.composite
def trainings(draw):
    schedule = draw(st.sampled_from(SCHEDULES))
    decay = None if schedule == "constant" else draw(st.none() | amounts.filter(bool))
    return {
        "lr": draw(st.floats(1e-8, 1e3)),
        "schedule": schedule,
        "warmup": draw(amounts),
        "decay": decay,
        "min_lr_ratio": draw(st.one_of(st.just(0.0), st.floats(1e-6, 1))),
    }


SHORT = {"lr": 1.0, "schedule": "linear", "warmup": 0, "decay": None, "min_lr_ratio": 0.0}


@given(trainings(), st.integers(1, 2000))
@example(SHORT, 1)
@example(SHORT, 2)
@example({**SHORT, "schedule": "wsd", "warmup": 5, "decay": 5}, 3)
def test_the_laws_of_a_learning_rate(training, num_steps):
    rate = rates(num_steps, **training)
    where = phases(training["schedule"], num_steps, warmup=training["warmup"], decay=training["decay"])
    lowest = training["lr"] * training["min_lr_ratio"]
    assert all(math.isfinite(each) and each <= training["lr"] for each in rate)
    assert all(each > 0 for each in rate[:-1])
    assert rate[-1] > 0 or training["min_lr_ratio"] == 0
    assert min(rate[where.peak :], default=lowest) >= lowest * (1 - 1e-12) or training["schedule"] == "constant"
    assert 0 <= where.peak <= num_steps
    assert where.peak <= where.decay_start <= where.last or where.peak == num_steps
    # It rises in the warm-up, and never after it.
    warmup, after = rate[: where.peak], rate[where.peak :]
    assert all(earlier < later for earlier, later in pairwise(warmup))
    assert all(earlier >= later for earlier, later in pairwise(after))
    if where.peak < num_steps:
        assert rate[where.peak] == training["lr"]
        assert all(each < training["lr"] for each in warmup)
    if training["schedule"] != "inv_sqrt":
        assert set(rate[where.peak : where.decay_start + 1]) <= {training["lr"]}
    if where.peak <= where.decay_start < where.last:
        assert rate[-1] == lowest


@given(trainings(), st.integers(1, 10**12), st.data())
def test_long_trainings_have_the_same_laws(training, num_steps, data):
    step = data.draw(st.integers(0, num_steps - 1))
    where = phases(training["schedule"], num_steps, warmup=training["warmup"], decay=training["decay"])
    assume(where.peak < num_steps)

    def at(step):
        return learning_rate(step, num_steps, **training)

    assert 0 <= at(step) <= training["lr"] == at(where.peak)
    assert at(num_steps + 5) == at(num_steps - 1)
    if step > where.peak:
        assert at(step) <= at(step - 1)
