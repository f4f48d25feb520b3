"""The arithmetic of the benchmarks: a wrong figure would be believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.command import BenchmarkError, Sample
from benchmarks.harness.numbers import Figure, Measured, figure, number, per_step
from benchmarks.harness.rows import at_most, at_most_times, told


def sample(seconds, *, cpu=0.0, rss=0.0, **said):
    return Sample(seconds=seconds, cpu_seconds=cpu, max_rss_mb=rss, said=said)


def exactly(value, unit="s"):
    return Figure(median=value, least=value, unit=unit)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_a_figure_lies_between_its_rounds_and_half_of_them_are_not_above_it(values):
    found = figure(values, "s")
    assert found.least == min(values) <= found.median <= max(values)
    assert sum(value <= found.median for value in values) * 2 >= len(values)


def test_one_slow_round_moves_no_median():
    assert figure([1.0, 99.0, 1.1], "s").median == 1.1


def test_nothing_measured_is_no_figure():
    with pytest.raises(ValueError, match="nothing was measured"):
        figure([], "s")


@given(st.floats(0, 100), st.floats(0, 100), st.integers(2, 10_000))
def test_a_cost_per_step_leaves_out_what_one_step_costs(start, milliseconds, steps):
    """A command that takes ``start`` seconds and then so long for each step, the first one too."""
    one = exactly(start + milliseconds / 1000)
    many = exactly(start + steps * milliseconds / 1000)
    found = per_step(many, one, steps)
    assert found.median == pytest.approx(milliseconds, abs=1e-6)
    assert found.unit == "ms/step"


def test_a_cost_per_step_of_one_step_is_refused():
    with pytest.raises(ValueError, match="at least 2 steps, not 1"):
        per_step(exactly(1.0), exactly(1.0), 1)


def test_the_cost_per_step_is_taken_from_the_medians_of_whole_commands():
    measured = Measured(
        {
            ("marin", 1): [sample(0.1, cpu=0.05), sample(0.2, cpu=0.05), sample(9.0, cpu=0.05)],
            ("marin", 1000): [sample(1.199, cpu=0.55), sample(1.0, cpu=0.5495), sample(7.0, cpu=0.5495)],
        }
    )
    found = measured.per_step("marin", 1000)
    assert found.median == pytest.approx(1.0)
    assert found.least == pytest.approx(0.9 / 0.999)
    assert found.cpu == pytest.approx(0.5)


def test_claims_about_every_run_take_the_worst_one():
    measured = Measured({("marin", 1): [sample(1, late=0.1), sample(1, late=0.7), sample(1, late=0.2)]})
    worst = measured.worst("marin", 1, lambda sample: sample.said["late"], "s")
    assert not at_most("a waiter", worst, 0.5).held


@pytest.mark.parametrize(("ours", "held"), [(0.9, True), (1.0, True), (1.01, False)])
def test_a_claim_against_a_peer_holds_up_to_its_limit(ours, held):
    row = at_most_times("cold", exactly(ours), "joblib", exactly(1.0), 1.0)
    assert row.held is held
    assert row.ratio == pytest.approx(ours)
    assert row.limit == "≤ 1 × joblib"


def test_half_of_the_peer_is_half_of_its_median_not_of_its_fastest_round():
    theirs = Figure(median=2.0, least=0.1, unit="s")
    row = at_most_times("cached", exactly(0.9), "joblib", theirs, 0.5)
    assert row.held
    assert row.ratio_of_least == pytest.approx(9.0)


@pytest.mark.parametrize(("ours", "held"), [(0.0999, True), (0.1, True), (0.1001, False)])
def test_a_claim_against_a_limit_holds_up_to_it(ours, held):
    assert at_most("cached", exactly(ours, "ms/step"), 0.1).held is held


def test_what_is_only_told_is_never_called_held():
    assert told("cold", exactly(1.0), "doit", exactly(2.0)).held is None


@pytest.mark.parametrize(("ours", "theirs"), [(1.0, 0.0), (1.0, -0.1), (-0.1, 1.0), (0.0, 1.0)])
def test_a_cost_that_noise_has_made_nothing_or_less_gives_no_verdict(ours, theirs):
    with pytest.raises(BenchmarkError, match="is no ratio"):
        at_most_times("cold", exactly(ours), "joblib", exactly(theirs), 1.0)


@pytest.mark.parametrize("ours", [0.0, -0.1])
def test_a_time_that_noise_has_made_nothing_or_less_is_below_no_limit(ours):
    with pytest.raises(BenchmarkError, match="is no measure"):
        at_most("cached", exactly(ours, "ms/step"), 0.1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (0.5, "0.5"),
        (1.234, "1.23"),
        (45.67, "45.7"),
        (789.4, "789"),
        (12345, "12,345"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_are_shown_with_three_digits(value, text):
    assert number(value) == text


def test_what_a_program_has_timed_itself_comes_with_its_processor_time():
    measured = Measured({("marin", 9): [sample(5, plan=1.0, plan_cpu=0.5), sample(5, plan=3.0, plan_cpu=0.7)]})
    found = measured.said("marin", 9, "plan")
    assert (found.median, found.least, found.cpu) == (2.0, 1.0, 0.6)
