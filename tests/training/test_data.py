"""The order of a validation. That of the training is in ``tests/processing/mixture``."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.processing.mixture.windows import gather
from marin.training.data import validation_batches
from tests.processing.mixture.streams import Stream

law = settings(deadline=None, max_examples=40)  # a busy machine is not a fault


def predicted(stream, **shape):
    """The targets that count, in order."""
    batches = validation_batches(stream, **shape)
    return [target for batch in batches for target in batch.tokens[:, 1:][batch.loss_mask].tolist()]


@law
@given(st.integers(2, 60), st.integers(1, 5))
def test_validation_predicts_every_token_but_the_first_once(num_tokens, batch_size):
    assert predicted(Stream(num_tokens), seq_len=4, batch_size=batch_size) == list(range(1, num_tokens))


def test_what_the_cache_masks_is_not_predicted():
    mask = np.arange(23) % 5 == 2
    assert predicted(Stream(23, mask=mask), seq_len=4, batch_size=2) == [2, 7, 12, 17, 22]


def test_every_batch_of_a_validation_has_the_same_shape():
    batches = list(validation_batches(Stream(23), seq_len=4, batch_size=4))
    assert {(batch.tokens.shape, batch.loss_mask.shape) for batch in batches} == {((4, 5), (4, 4))}


def test_documents_are_told_apart_as_in_the_training():
    stream = Stream(3, 6, 1, 4, 9)
    [batch] = validation_batches(stream, seq_len=4, batch_size=6, segments=True)
    trained = gather([stream], np.zeros(5, np.int64), np.arange(5), seq_len=4, segments=True)
    assert batch.segment_ids[:5].tolist() == trained.segment_ids.tolist()
    assert batch.positions[:5].tolist() == trained.positions.tolist()
    assert batch.loss_mask[5].tolist() == [True, True, False, False]
