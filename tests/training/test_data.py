"""The order of the data: what each batch holds is a function of seed and step, and of nothing else."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import DataError
from marin.training.data import MIXTURE_BLOCK, Component, TrainingData, mixture_counts, validation_batches
from marin.training.loss import MASKED
from marin.training.shuffle import mix, permuted

law = settings(deadline=None, max_examples=40)  # a busy machine is not a fault


class Count:
    """The stream 0, 1, 2, …: a token says where it was."""

    def __init__(self, num_tokens):
        self.num_tokens = num_tokens

    def tokens(self, start, count):
        assert start >= 0
        assert start + count <= self.num_tokens
        return np.arange(start, start + count)


def data(*sizes, weights=None, seq_len=4, batch_size=3, seed=0):
    components = [
        Component(name=f"set {number}", reader=Count(size), weight=weight)
        for number, (size, weight) in enumerate(zip(sizes, weights or [1.0] * len(sizes), strict=True))
    ]
    return TrainingData(components, seq_len=seq_len, batch_size=batch_size, seed=seed)


def order(training_data, count, batch_size=3):
    """The first ``count`` windows, batch after batch."""
    return [window for step in range(-(-count // batch_size)) for window in training_data.windows(step)][:count]


@law
@given(st.integers(1, 5000), st.integers(0, 2**32 - 1))
def test_a_permutation_hits_every_position_once(size, seed):
    result = permuted(np.arange(size, dtype=np.uint64), size, mix(np.full(size, seed)))
    assert sorted(result.tolist()) == list(range(size))


def test_a_permutation_looks_shuffled():
    size = 10_000
    result = permuted(np.arange(size, dtype=np.uint64), size, mix(np.full(size, 3))).astype(np.int64)
    assert abs(np.corrcoef(np.arange(size), result)[0, 1]) < 0.03
    assert np.mean(np.abs(np.diff(result)) <= 1) < 0.01


def test_the_order_is_pinned():
    """If this changes, a resumed training goes on with other data than it began with: say so in CHANGELOG.md."""
    assert permuted(np.arange(10, dtype=np.uint64), 10, mix(np.full(10, 1))).tolist() == [3, 0, 4, 7, 5, 6, 2, 9, 1, 8]
    assert data(50, 90, weights=[1, 3], seed=5).windows(1000) == [(1, 13), (0, 0), (1, 16)]


@law
@given(st.integers(3, 40), st.integers(0, 1000), st.integers(1, 7))
def test_each_window_comes_once_per_epoch(windows, seed, batch_size):
    training_data = data(4 * windows + 1, seed=seed, batch_size=min(batch_size, windows))
    seen = order(training_data, 3 * windows, min(batch_size, windows))
    for epoch in range(3):
        assert sorted(seen[epoch * windows : (epoch + 1) * windows]) == [(0, window) for window in range(windows)]


def test_epochs_and_seeds_have_orders_of_their_own():
    first, second = np.split(np.array(order(data(401), 200)), 2)
    assert (first != second).any()
    assert order(data(401, seed=1), 100) != order(data(401, seed=2), 100)


def test_within_a_mixture_too_each_window_comes_once_per_epoch():
    training_data = data(401, 201, weights=[0.75, 0.25])
    seen = order(training_data, 300)
    for component, windows in ((0, 100), (1, 50)):
        own = [window for number, window in seen if number == component]
        assert len(own) >= windows
        assert sorted(own[:windows]) == list(range(windows))


@law
@given(st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_a_block_is_divided_in_proportion(weights):
    counts = mixture_counts([float(weight) for weight in weights])
    assert counts.sum() == MIXTURE_BLOCK
    exact = np.array(weights) / sum(weights) * MIXTURE_BLOCK
    assert (np.abs(counts - exact) < 1).all()


def test_weights_of_any_size_are_only_relative_to_each_other():
    assert mixture_counts([1e308, 1e308]).tolist() == [1024, 1024]
    assert mixture_counts([5e-324, 5e-324]).tolist() == [1024, 1024]


def test_every_block_of_sequences_holds_the_mixture_exactly():
    training_data = data(4001, 2001, 801, weights=[2, 1, 1], batch_size=MIXTURE_BLOCK // 4)
    for block in range(3):
        seen = [window for step in range(4 * block, 4 * block + 4) for window in training_data.windows(step)]
        assert Counter(component for component, _ in seen) == {0: 1024, 1: 512, 2: 512}


@law
@given(st.integers(0, 10_000))
def test_shares_count_what_the_batches_hold(num_steps):
    training_data = data(401, 201, weights=[2, 1])
    table = training_data.shares(num_steps)
    assert sum(sequences for _, sequences, _ in table) == 3 * num_steps
    if num_steps < 60:
        counted = Counter(component for component, _ in order(training_data, 3 * num_steps))
        assert [sequences for _, sequences, _ in table] == [counted[0], counted[1]]


def test_a_far_step_is_reached_as_fast_as_a_near_one():
    training_data = data(401, 201, weights=[2, 1])
    far = 10**12
    assert len(training_data.windows(far)) == 3  # would not return if it counted up
    assert training_data.windows(far) == data(401, 201, weights=[2, 1]).windows(far)


def test_a_batch_holds_the_tokens_of_its_windows_and_one_more_each():
    training_data = data(41, 81, weights=[1, 1])
    for row, (_, window) in zip(training_data.batch(7), training_data.windows(7), strict=True):
        assert row.tolist() == list(range(4 * window, 4 * window + 5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": [4]}, r"set 0 has 4 training tokens, fewer than the 5 of one window .* lower seq_len=4"),
        ({"sizes": [401, 3]}, r"set 1 has 3 training tokens"),
        ({"sizes": [9]}, r"holds 2 windows of seq_len=4 tokens, fewer than one batch of 3: lower batch_size"),
        ({"sizes": [401, 401], "weights": [1, 1e-9]}, r"the weight of set 1 gives it less than one in 2048 sequences"),
    ],
)
def test_too_little_data_is_told_with_both_numbers(arguments, message):
    with pytest.raises(DataError, match=message):
        data(*arguments["sizes"], weights=arguments.get("weights"))


def test_a_component_of_weight_zero_is_not_trained_on():
    assert {component for component, _ in order(data(401, 3, weights=[1, 0]), 100)} == {0}


@law
@given(st.integers(2, 60), st.integers(1, 5))
def test_validation_predicts_every_token_but_the_first_once(num_tokens, batch_size):
    targets = [
        batch[:, 1:].reshape(-1) for batch in validation_batches(Count(num_tokens), seq_len=4, batch_size=batch_size)
    ]
    flat = np.concatenate(targets)
    assert flat[flat != MASKED].tolist() == list(range(1, num_tokens))


def test_every_batch_of_a_validation_has_the_same_shape():
    shapes = {batch.shape for batch in validation_batches(Count(23), seq_len=4, batch_size=4)}
    assert shapes == {(4, 5)}
