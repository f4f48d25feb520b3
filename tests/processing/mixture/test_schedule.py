"""Who gives which sequence: exact counts, at any place, over any stages."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import ConfigurationError
from marin.processing.mixture.schedule import MIXTURE_BLOCK, Schedule, block_counts
from tests.processing.mixture.streams import stages

law = settings(deadline=None, max_examples=40)

weight = st.floats(0, 1e300, allow_subnormal=True) | st.integers(0, 100).map(float)
weights = st.lists(weight, min_size=1, max_size=9).filter(any)


def components_of(schedule, first, count):
    """The component of each sequence, as the batches take them."""
    return [
        component
        for stage, block, slots in schedule.pieces(first, count)
        for component in schedule.block(stage, block).components[slots].tolist()
    ]


@law
@given(weights)
def test_a_block_is_divided_in_proportion(given_weights):
    counts = block_counts(given_weights)
    assert counts.sum() == MIXTURE_BLOCK
    largest = max(given_weights)
    total = math.fsum(each / largest for each in given_weights)
    for each, count in zip(given_weights, counts.tolist(), strict=True):
        assert abs(count - each / largest / total * MIXTURE_BLOCK) < 1 + 1e-9


@law
@given(weights, st.sampled_from([1e-9, 0.5, 3.0, 1e9]))
def test_only_the_proportion_of_weights_counts(given_weights, factor):
    scaled = [each * factor for each in given_weights]
    if all(math.isfinite(each) and (each == 0) == (old == 0) for each, old in zip(scaled, given_weights, strict=True)):
        assert np.abs(block_counts(scaled) - block_counts(given_weights)).max() <= 1  # only what rounding decides


@pytest.mark.parametrize(
    ("given_weights", "counts"),
    [
        ([1e308, 1e308], [1024, 1024]),
        ([5e-324, 5e-324], [1024, 1024]),
        ([1e300, 1e-9], [2048, 0]),
        ([1, 1, 1], [683, 683, 682]),
        ([1, 0, 3], [512, 0, 1536]),
        ([1] * 2048, [1] * 2048),
    ],
)
def test_weights_of_any_size_are_only_relative_to_each_other(given_weights, counts):
    assert block_counts(given_weights).tolist() == counts


@law
@given(weights, st.integers(0, 2**32 - 1), st.integers(0, 3 * MIXTURE_BLOCK), st.integers(1, 700))
def test_over_any_prefix_the_counts_are_those_of_the_sequences_and_near_their_share(given_weights, seed, end, batch):
    schedule = Schedule(stages(given_weights), batch_size=batch, seed=seed)
    given_so_far = schedule.given_before(end)
    tally = Counter(components_of(schedule, 0, end))
    assert given_so_far.tolist() == [tally[number] for number in range(len(given_weights))]
    [counts] = schedule.counts
    for count, share in zip(given_so_far.tolist(), counts.tolist(), strict=True):
        # Within a block at worst all of a component's slots come first, or last.
        assert abs(count - end * share / MIXTURE_BLOCK) <= share * (1 - share / MIXTURE_BLOCK)
        if end % MIXTURE_BLOCK == 0:
            assert count == end // MIXTURE_BLOCK * share


@law
@given(st.data())
def test_stages_switch_exactly_at_their_step(draw):
    steps = sorted(draw.draw(st.sets(st.integers(1, 60), max_size=4)))
    batch = draw.draw(st.integers(1, 200))
    # In stage n only component n has a weight: a sequence tells in which stage it was taken.
    of_stages = [tuple(float(number == stage) for number in range(len(steps) + 1)) for stage in range(len(steps) + 1)]
    schedule = Schedule(stages(*of_stages, at=steps), batch_size=batch, seed=draw.draw(st.integers(0, 99)))
    for step in range(62):
        stage = sum(start <= step for start in steps)
        assert set(components_of(schedule, step * batch, batch)) == {stage}


@law
@given(st.data())
def test_counts_go_on_over_stages(draw):
    count = draw.draw(st.integers(1, 4))
    steps = sorted(draw.draw(st.sets(st.integers(1, 40), max_size=3)))
    positive = st.tuples(*[st.integers(0, 9)] * count).filter(any)
    of_stages = [draw.draw(positive) for _ in range(len(steps) + 1)]
    batch = draw.draw(st.integers(1, 300))
    schedule = Schedule(stages(*of_stages, at=steps), batch_size=batch, seed=3)
    ordinals = [list[int]() for _ in range(count)]
    for stage, block, slots in schedule.pieces(0, 45 * batch):
        of_block = schedule.block(stage, block)
        for component, ordinal in zip(of_block.components[slots], of_block.ordinals[slots], strict=True):
            ordinals[component].append(int(ordinal))
    # No sequence of a component is left out, none comes twice, and they come in order.
    assert ordinals == [list(range(len(each))) for each in ordinals]
    assert schedule.given_before(45 * batch).tolist() == [len(each) for each in ordinals]


def test_blocks_of_different_stages_have_orders_of_their_own():
    schedule = Schedule(stages((1, 1), (1, 1), at=[1]), batch_size=MIXTURE_BLOCK, seed=0)
    assert components_of(schedule, 0, MIXTURE_BLOCK) != components_of(schedule, MIXTURE_BLOCK, MIXTURE_BLOCK)


def test_a_far_sequence_is_reached_as_fast_as_a_near_one():
    schedule = Schedule(stages((2, 1), (1, 2), at=[10**9]), batch_size=4096, seed=0)
    far = 10**12 * 4096
    assert len(components_of(schedule, far, 64)) == 64  # would not return if it counted up
    assert schedule.given_before(far).sum() == far
    with pytest.raises(IndexError, match=r"there is no sequence 4611686018427387904"):
        schedule.place(2**62)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ([], r"stages of the mixture begin at steps \[\]: they must ascend from 0"),
        (stages((1,), (1,), at=[0]), r"begin at steps \[0, 0\]: they must ascend from 0"),
        (stages((1,), (1,), (1,), at=[7, 5]), r"begin at steps \[0, 7, 5\]"),
        (stages((1, 1), (1,), at=[5]), r"from step 5 on are \[1.0\], but there are 2 components: give one weight"),
        (stages((1, -1)), r"from step 0 on are \[1.0, -1.0\]: a weight is a finite number, zero or more"),
        (stages((1, math.nan)), r"\[1.0, nan\]: a weight is a finite number"),
        (stages((1, math.inf)), r"\[1.0, inf\]: a weight is a finite number"),
        (stages((0, 0)), r"\[0.0, 0.0\]: give at least one a positive weight"),
    ],
)
def test_stages_that_can_not_be_followed_are_told(broken, message):
    with pytest.raises(ConfigurationError, match=message):
        Schedule(broken, batch_size=1, seed=0)
