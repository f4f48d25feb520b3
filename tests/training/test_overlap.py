"""A validation on text that is trained on is told before the first step, whichever files hold it."""

import numpy as np
import pytest

from marin.errors import DataError
from marin.processing.mixture.faults import Faults
from marin.processing.tokenize.manifest import TRAIN
from marin.processing.tokenize.open_stream import open_split
from marin.training.overlap import check_overlap
from marin.training.prepare import prepare
from tests.training.caches import cycle, make_cache
from tests.training.runs import train_config

VOCAB = 32
TEXT, OTHER = cycle(VOCAB, 1000, seed=3), cycle(VOCAB, 1000, seed=4)


def cache(path, ids, *, each=100):
    return make_cache(path, ids, vocab_size=VOCAB, documents=[each] * (len(ids) // each))


def check(trained_on, validation):
    faults = Faults()
    check_overlap([open_split(one, TRAIN) for one in trained_on], [open_split(validation, TRAIN)], faults)
    faults.raise_all("the data")


def test_a_cache_of_the_same_documents_and_others_is_no_validation(tmp_path):
    trained_on = cache(tmp_path / "trained", TEXT[:800])
    everything = cache(tmp_path / "everything", np.concatenate([OTHER[:200], TEXT]))
    with pytest.raises(
        DataError,
        match=r"overlaps the training: of the first 12 documents of the train split of .*everything, 8 are also in "
        r".*trained: validate on other text",
    ):
        prepare(train_config(tmp_path / "out", trained_on, validation=(everything,)))


def test_half_of_the_documents_is_too_much_wherever_they_are_trained_on(tmp_path):
    trained_on = [cache(tmp_path / "first", TEXT[:300]), cache(tmp_path / "second", TEXT[200:500])]
    check(trained_on, cache(tmp_path / "less", np.concatenate([TEXT[:500], OTHER[:600]])))
    with pytest.raises(DataError, match=r"of the first 10 documents .*, 5 are also in .*first, .*second"):
        check(trained_on, cache(tmp_path / "half", np.concatenate([TEXT[:500], OTHER[:500]])))


def test_short_documents_may_be_alike(tmp_path):
    trained_on = [cache(tmp_path / "trained", TEXT[:800], each=20)]
    check(trained_on, cache(tmp_path / "short", TEXT, each=20))
    with pytest.raises(DataError, match=r"overlaps the training: what train/part-0.arrow of"):
        check(trained_on, cache(tmp_path / "copy", TEXT[:800], each=20))


def test_documents_of_one_length_that_differ_in_a_token_are_others(tmp_path):
    changed = TEXT.copy()
    changed[::100] = (changed[::100] + 1) % VOCAB
    check([cache(tmp_path / "trained", TEXT)], cache(tmp_path / "changed", changed))
