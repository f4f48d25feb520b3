"""Rotary frequencies to the last bit: at position 8000 one bit of them is a thousandth of the cosine."""

import numpy as np
import pytest

from marin.training.models.rope import frequencies
from marin.training.models.rope_scaling import linear_scaling, llama3_scaling

# What transformers 5 computes with torch, as the bits of float32.
THEIRS = {
    "plain": (
        (24, 1e6, None),
        "1065353216 1050798235 1036831948 1023510243 1008981769 995049017 "
        "981668463 967166818 953267987 939827890 925353392 911488897",
    ),
    "linear": (
        (24, 1e6, linear_scaling(4.0)),
        "1048576000 1034021019 1020054732 1006733027 992204553 978271801 "
        "964891247 950389602 936490771 923050674 908576176 894711681",
    ),
    "llama3": (
        (16, 500.0, llama3_scaling(factor=8.0, original_max_seq_len=64)),
        "1065353216 1055617843 1036512058 1011296925 1001860543 992508269 983233351 974029581",
    ),
}


@pytest.mark.parametrize(("given", "bits"), THEIRS.values(), ids=THEIRS)
def test_frequencies_are_the_bits_of_the_models_on_the_hub(given, bits):
    assert frequencies(*given).view(np.uint32).tolist() == [int(each) for each in bits.split()]
