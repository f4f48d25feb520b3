"""From windows to arrays: tokens, loss masks, and the documents of a row."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.processing.mixture.windows import gather
from tests.processing.mixture.streams import Stream

law = settings(deadline=None, max_examples=60)


def rows(stream, *windows, seq_len=4, **options):
    chosen = np.array(windows, np.int64)
    return gather([stream], np.zeros_like(chosen), chosen, seq_len=seq_len, **options)


def test_rows_are_in_the_order_asked_for():
    batch = rows(Stream(41), 7, 2, 9, 2)
    assert batch.tokens[:, 0].tolist() == [28, 8, 36, 8]
    assert batch.segment_ids is None
    assert batch.positions is None


def test_documents_of_a_row_are_numbered_and_counted_from_their_starts():
    batch = rows(Stream(2, 1, 3, 11), 0, 1, 2, segments=True)
    assert batch.segment_ids.tolist() == [[0, 0, 1, 2], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 2, 3]]


def test_a_document_that_begins_with_the_row_is_its_first():
    batch = rows(Stream(4, 4, 9), 1, segments=True)
    assert batch.segment_ids.tolist() == [[0, 0, 0, 0]]


def test_borders_are_learned_unless_they_are_masked():
    stream = Stream(2, 1, 3, 11)
    assert rows(stream, 0, 1).loss_mask.all()
    masked = rows(stream, 0, 1, 2, mask_boundaries=True)
    # The targets that begin a document are tokens 2, 3 and 6.
    assert masked.loss_mask.tolist() == [[True, False, False, True], [True, False, True, True], [True] * 4]


def test_empty_documents_change_nothing():
    with_empty, without = Stream(2, 0, 0, 3, 4), Stream(2, 3, 4)
    for mask_boundaries in (False, True):
        one = rows(with_empty, 0, 1, segments=True, mask_boundaries=mask_boundaries)
        other = rows(without, 0, 1, segments=True, mask_boundaries=mask_boundaries)
        assert one.segment_ids.tolist() == other.segment_ids.tolist()
        assert one.loss_mask.tolist() == other.loss_mask.tolist()


@law
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 8), st.booleans())
def test_documents_are_what_their_lengths_say(lengths, seq_len, mask_boundaries):
    stream = Stream(*lengths, seq_len + 1)
    windows = (stream.num_tokens - 1) // seq_len
    batch = rows(stream, *range(windows), seq_len=seq_len, segments=True, mask_boundaries=mask_boundaries)
    document = np.repeat(np.arange(len(lengths) + 1), [*lengths, seq_len + 1])
    for window in range(windows):
        own = document[window * seq_len : window * seq_len + seq_len + 1]
        inputs, targets = own[:-1], own[1:]
        kinds = {number: index for index, number in enumerate(dict.fromkeys(inputs.tolist()))}
        assert batch.segment_ids[window].tolist() == [kinds[number] for number in inputs.tolist()]
        positions = [index - inputs.tolist().index(number) for index, number in enumerate(inputs.tolist())]
        assert batch.positions[window].tolist() == positions
        learned = (inputs == targets) if mask_boundaries else np.ones(seq_len, bool)
        assert batch.loss_mask[window].tolist() == learned.tolist()


def test_a_host_without_rows_gets_arrays_without_rows():
    batch = rows(Stream(41), segments=True, mask_boundaries=True)
    shapes = [each.shape for each in (batch.tokens, batch.loss_mask, batch.segment_ids, batch.positions)]
    assert shapes == [(0, 5), (0, 4), (0, 4), (0, 4)]
    assert {each.dtype for each in (batch.tokens, batch.segment_ids, batch.positions)} == {np.dtype(np.int32)}
