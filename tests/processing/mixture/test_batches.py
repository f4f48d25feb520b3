"""The batches: a function of seed and step alone, every window once per epoch, the same for any number of hosts."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import DataError
from marin.processing.mixture.batches import Component, TrainingData
from marin.processing.mixture.schedule import MIXTURE_BLOCK
from tests.processing.mixture.streams import Stream, data, order, pairs, stages

law = settings(deadline=None, max_examples=40)


@law
@given(st.integers(1, 40), st.integers(0, 1000), st.integers(1, 7))
def test_each_window_comes_once_per_epoch(windows, seed, batch_size):
    training_data = data(windows, seed=seed, batch_size=min(batch_size, windows))
    seen = order(training_data, 3 * windows)
    for epoch in range(3):
        assert sorted(seen[epoch * windows : (epoch + 1) * windows]) == [(0, window) for window in range(windows)]


@law
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
)
def test_within_a_mixture_and_over_stages_too_each_window_comes_once_per_epoch(components, seed, switch):
    sizes, early, late = zip(*components, strict=True)
    training_data = data(*sizes, weights=[early, late], at=[switch], seed=seed, batch_size=1)
    seen = order(training_data, 300)
    for component, size in enumerate(sizes):
        own = [window for number, window in seen if number == component]
        for epoch in range(len(own) // size):
            assert sorted(own[epoch * size : (epoch + 1) * size]) == list(range(size))
        rest = own[len(own) // size * size :]
        assert len(set(rest)) == len(rest)


def test_epochs_and_seeds_and_components_have_orders_of_their_own():
    first, second = np.split(np.array(order(data(100, batch_size=1), 200)), 2)
    assert (first != second).any()
    assert order(data(100, seed=1), 30) != order(data(100, seed=2), 30)
    seen = order(data(100, 100, batch_size=1), 100)
    orders = [[window for number, window in seen if number == component] for component in (0, 1)]
    assert orders[0][:40] != orders[1][:40]


@law
@given(st.integers(0, 10**9), st.integers(1, 5000), st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_a_restart_at_any_step_on_any_number_of_hosts_gives_the_same_batches(step, batch_size, seed, hosts):
    arguments = {"weights": [(3, 1, 0), (1, 1, 1)], "at": [5000], "batch_size": batch_size, "seed": seed}
    running, restarted = data(9000, 5000, 2**40, **arguments), data(9000, 5000, 2**40, **arguments)
    pairs(running, max(0, step - 1))
    whole = pairs(running, step)
    assert len(whole) == batch_size
    assert [pair for host in range(hosts) for pair in pairs(restarted, step, host=host, hosts=hosts)] == whole


def test_a_host_gets_its_rows_and_nothing_else():
    training_data = data(50, 50, batch_size=6)
    whole = training_data.batch(3)
    second = training_data.batch(3, host=1, hosts=3)
    assert second.tokens.tolist() == whole.tokens[2:4].tolist()
    assert training_data.batch(3, host=6, hosts=7).tokens.shape == (1, 5)
    assert training_data.batch(3, host=0, hosts=7).tokens.shape == (0, 5)
    with pytest.raises(IndexError, match=r"host 3 of 3: hosts are numbered from 0 to 2"):
        training_data.batch(3, host=3, hosts=3)


def test_every_block_of_sequences_holds_the_mixture_exactly():
    training_data = data(1000, 500, 200, weights=[2, 1, 1], batch_size=MIXTURE_BLOCK // 4)
    for block in range(3):
        seen = [pair for step in range(4 * block, 4 * block + 4) for pair in pairs(training_data, step)]
        assert Counter(component for component, _ in seen) == {0: 1024, 1: 512, 2: 512}


def test_streams_of_2_to_the_40_windows_are_reached_at_step_10_to_the_9():
    training_data = data(2**40, 2**41, weights=[1, 3], seq_len=8192, batch_size=4096)
    seen = pairs(training_data, 10**9)
    assert len(set(seen)) == 4096
    assert max(window for _, window in seen) > 2**39
    batch = training_data.batch(10**9, host=0, hosts=512)
    expected = [(window * 8192) % 2**32 for _, window in seen[:8]]
    assert (batch.tokens[:, 0].astype(np.uint32)).tolist() == expected
    assert sum(row.sequences for row in training_data.budget(10**9)) == 4096 * 10**9


def test_hundreds_of_components_each_give_their_share():
    sizes = [1 + number for number in range(400)]
    training_data = data(*sizes, weights=[1.0 + number % 3 for number in range(400)], batch_size=2048)
    seen = Counter(component for component, _ in pairs(training_data, 5))
    assert {seen[number] for number in range(0, 400, 3)} == {2, 3}  # 2.56 of a block of 2048
    assert {seen[number] for number in range(1, 400, 3)} == {5}  # 5.13
    assert {seen[number] for number in range(2, 400, 3)} == {8}  # 7.69


def test_a_batch_holds_the_tokens_of_its_windows_and_one_more_each():
    training_data = data(10, 20)
    batch = training_data.batch(7)
    for row, (_, window) in zip(batch.tokens, pairs(training_data, 7), strict=True):
        assert row.tolist() == list(range(4 * window, 4 * window + 5))
    assert batch.tokens.dtype == np.int32
    assert batch.loss_mask.all()


@law
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_limited_component_gives_so_many_windows_a_sample_of_all_and_then_those_again(limit, seed):
    training_data = data(1000, limits=[limit], batch_size=5, seed=seed)
    epochs = [
        sorted(window for _, window in order(training_data, 3 * limit)[e * 5 * limit :][: 5 * limit]) for e in (0, 1, 2)
    ]
    assert len(set(epochs[0])) == 5 * limit
    assert epochs[0] == epochs[1] == epochs[2]
    assert epochs[0] != list(range(5 * limit))  # not the first ones of the stream, which may be of one kind
    assert training_data.num_windows == 5 * limit


def test_a_limit_that_is_not_reached_changes_nothing():
    assert order(data(12, 30, limits=[4, None]), 20) == order(data(12, 30), 20)
    assert data(12, 30, limits=[4, 5]).num_windows == 12 + 15


def test_a_component_of_weight_zero_in_every_stage_is_not_trained_on():
    training_data = data(100, 0, weights=[(1, 0), (2, 0)], at=[10])
    assert {component for component, _ in order(training_data, 40)} == {0}
    assert [row.name for row in training_data.budget(40)] == ["set 0"]


def test_a_component_may_begin_late():
    training_data = data(100, 50, weights=[(1, 0), (0, 1)], at=[10])
    assert [component for component, _ in order(training_data, 20)] == [0] * 30 + [1] * 30


@law
@given(st.integers(0, 10_000))
def test_the_budget_counts_what_the_batches_hold(num_steps):
    training_data = data(100, 50, weights=[(2, 1), (1, 5)], at=[30])
    table = training_data.budget(num_steps)
    assert sum(row.sequences for row in table) == 3 * num_steps
    assert [row.trained_tokens for row in table] == [4 * row.sequences for row in table]
    assert [row.epochs for row in table] == [table[0].sequences / 100, table[1].sequences / 50]
    if num_steps < 60:
        counted = Counter(component for component, _ in order(training_data, num_steps))
        assert [row.sequences for row in table] == [counted[0], counted[1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sizes": [0]}, r"set 0 has 1 training tokens, fewer than the 5 of one window .* lower seq_len=4"),
        ({"sizes": [100, 0]}, r"set 1 has 1 training tokens"),
        ({"sizes": [2]}, r"holds 2 windows of seq_len=4 tokens, fewer than one batch of 3: lower batch_size"),
        ({"sizes": [100, 9], "weights": [1, 1e-9]}, r"weight of set 1 gives it less than one in 2048 sequences"),
        ({"sizes": [9, 9], "weights": [(1, 1e-9), (1e9, 1)], "at": [3]}, r"the weight of set 1 gives it less than"),
    ],
)
def test_too_little_data_is_told_with_both_numbers(arguments, message):
    sizes = arguments.pop("sizes")
    with pytest.raises(DataError, match=message):
        data(*sizes, **arguments)


def test_all_components_at_fault_are_told_in_one_error():
    with pytest.raises(DataError) as caught:
        data(0, 100, 0, 100, weights=[1, 1, 1, 1e-9])
    lines = str(caught.value).splitlines()
    assert lines[0] == "the training data: 3 faults"
    assert [line.split(" has ")[0].split(" gives ")[0].strip() for line in lines[1:]] == [
        "set 0",
        "set 2",
        "the weight of set 3",
    ]


def test_a_share_in_one_stage_is_enough():
    training_data = data(9, 9, weights=[(1, 1e-9), (1, 1)], at=[2])
    assert [row.shares for row in training_data.budget(4)] == [(1.0, 0.5), (0.0, 0.5)]


def test_masks_of_a_cache_and_borders_of_documents_are_in_the_batch():
    learned = np.arange(17) % 3 > 0
    chat, prose = Stream(17, mask=learned), Stream(6, 11, first=100)
    training_data = TrainingData(
        [Component(name="chat", stream=chat), Component(name="prose", stream=prose)],
        stages((1, 1)),
        seq_len=4,
        batch_size=8,
        seed=0,
        mask_boundaries=True,
        segments=True,
    )
    batch = training_data.batch(0)
    for row, (component, window) in enumerate(pairs(training_data, 0)):
        targets = np.arange(4 * window + 1, 4 * window + 5)
        expected = learned[targets] if component == 0 else targets != 6
        assert batch.loss_mask[row].tolist() == expected.tolist()
