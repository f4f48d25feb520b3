"""Mixtures are described by handles, and every mistake that can be told at once is told at once."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import ConfigurationError
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.processing.mixture.mixture import interpolated, mixture
from marin.processing.tokenize.tokenize import TokenizedCache


def tokens(name):
    return ArtifactStep(name=name, version="2026.07.01", run="my.tokens:make", artifact_type=TokenizedCache)


WEB, CODE, BOOKS = tokens("tokenized/web"), tokens("tokenized/code"), tokens("tokenized/books")


def by_step(mixed):
    return {stage.start_step: stage.weights for stage in mixed.stages}


def test_a_later_stage_replaces_all_weights():
    mixed = mixture({WEB: 3, CODE: 1}, stages={500: {BOOKS: 1}, 100: {WEB: 1, BOOKS: 1}})
    assert mixed.components == (WEB, CODE, BOOKS)
    assert by_step(mixed) == {0: (3.0, 1.0, 0.0), 100: (1.0, 0.0, 1.0), 500: (0.0, 0.0, 1.0)}


def test_numbers_of_numpy_are_the_numbers_that_they_are():
    mixed = mixture(
        {WEB: np.int64(3), CODE: np.float32(0.5)},
        stages={np.int64(100): {WEB: np.float64(1)}},
        max_train_batches={CODE: np.int32(20)},
    )
    same = mixture({WEB: 3, CODE: 0.5}, stages={100: {WEB: 1}}, max_train_batches={CODE: 20})
    assert mixed == same
    assert repr(mixed) == repr(same)  # equal, and of the same types
    ends = {"start_step": np.int64(10), "end_step": np.int64(50), "stages": np.int64(4)}
    assert interpolated({WEB: 1}, {CODE: 1}, **ends) == interpolated(
        {WEB: 1}, {CODE: 1}, start_step=10, end_step=50, stages=4
    )


def test_limits_are_given_by_handle():
    assert mixture({WEB: 3, CODE: 1}, max_train_batches={CODE: 20}).max_train_batches == (None, 20)


def test_interpolated_weights_go_in_a_straight_line_of_shares():
    mixed = interpolated({WEB: 8}, {WEB: 3, CODE: 3}, start_step=10, end_step=50, stages=4)
    assert by_step(mixed) == {
        0: (1.0, 0.0),
        10: (0.9375, 0.0625),
        20: (0.8125, 0.1875),
        30: (0.6875, 0.3125),
        40: (0.5625, 0.4375),
        50: (0.5, 0.5),
    }
    assert list(by_step(interpolated({WEB: 1}, {CODE: 1}, end_step=9, stages=3))) == [0, 3, 6, 9]


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from([WEB, CODE, BOOKS]), st.floats(1e-300, 1e300), min_size=1),
    st.dictionaries(st.sampled_from([WEB, CODE, BOOKS]), st.floats(1e-300, 1e300), min_size=1),
    st.integers(0, 1000),
    st.integers(1, 40),
    st.integers(0, 1000),
)
def test_interpolated_shares_are_always_shares_and_move_one_way(before, after, start, parts, more):
    mixed = interpolated(before, after, start_step=start, end_step=start + parts + more, stages=parts)
    starts = [stage.start_step for stage in mixed.stages]
    assert starts == sorted(set(starts))
    assert starts[0] == 0
    assert starts[-1] == start + parts + more
    for stage in mixed.stages:
        assert math.fsum(stage.weights) == pytest.approx(1.0)
    for series in zip(*(stage.weights for stage in mixed.stages), strict=True):
        rising = series[-1] >= series[0]
        assert all(b >= a - 1e-15 if rising else b <= a + 1e-15 for a, b in pairwise(series))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mixture([WEB]), r"mixture: datasets is list: give a token cache, or a mapping of token caches to"),
        (lambda: mixture({"web": 1}), r"mixture: datasets has str 'web', which is no token cache"),
        (
            lambda: mixture({ArtifactStep(name="raw/web", run="a:b", artifact_type=Artifact): 1}),
            r"ArtifactStep\[Artifact\]\(raw/web@dev\), which is no token cache: give a tokenized",
        ),
        (lambda: mixture({WEB: -1}), r"mixture: the weight of .*web.* is -1: a weight is a finite number"),
        (lambda: mixture({WEB: math.nan}), r"the weight of .* is nan"),
        (lambda: mixture({WEB: np.float32(math.inf)}), r"the weight of .* is np.float32\(inf\): a weight is a finite"),
        (lambda: mixture({WEB: np.True_}), r"the weight of .* is np.True_: a weight is a finite number"),
        (lambda: mixture({WEB: "1"}), r"the weight of .* is '1': a weight is a finite number"),
        (lambda: mixture({WEB: 10**400}), r"the weight of .* is 10000"),
        (lambda: mixture({WEB: 0}), r"the weights of datasets sum to 0"),
        (lambda: mixture({WEB: 1}, stages={9: {CODE: 0}}), r"mixture: stage 9: the weights of datasets sum to 0"),
        (lambda: mixture({WEB: 1}, stages={0: {CODE: 1}}), r"begins at step 0: .* the first argument"),
        (lambda: mixture({WEB: 1}, stages={1.5: {CODE: 1}}), r"begins at step 1.5"),
        (lambda: mixture({WEB: 1}, stages=[WEB]), r"stages is list: give a mapping of steps to weights"),
        (lambda: mixture({WEB: 1}, max_train_batches={CODE: 1}), r"max_train_batches has .*code.* has no weight"),
        (lambda: mixture({WEB: 1}, max_train_batches={WEB: 0}), r"max_train_batches of .* is 0: give a whole number"),
        (lambda: mixture({WEB: 1}, max_train_batches=5), r"max_train_batches is int: give a mapping of token caches"),
        (lambda: mixture({WEB: 1}, mask_boundaries="no"), r"mask_boundaries='no' is neither True nor False"),
        (
            lambda: mixture({WEB: 1}, stages={5: {tokens("tokenized/web"): 1}}),
            r"tokenized/web@2026.07.01\) is there twice, as two handles: make it once",
        ),
        (lambda: interpolated({WEB: 1}, {CODE: 1}, end_step=5, stages=6), r"are fewer steps than stages=6: end later"),
        (lambda: interpolated({WEB: 1}, {CODE: 1}, start_step=9, end_step=5, stages=1), r"fewer steps than stages=1"),
        (lambda: interpolated({WEB: 1}, {CODE: 1}, start_step=-1, end_step=5), r"start_step=-1 is not a whole number"),
        (lambda: interpolated({WEB: 1}, {CODE: 1}, end_step=50, stages=0), r"stages=0 is not a whole number"),
        (lambda: interpolated({WEB: 1}, {CODE: -1}, end_step=50), r"interpolated: after: the weight of .*code.* is -1"),
    ],
)
def test_a_mistake_is_told_when_the_mixture_is_made(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
