import pytest

from marin.errors import ConfigurationError
from marin.execution.fingerprint import encode
from marin.training.models.llama_config import LlamaConfig
from marin.training.models.rope_scaling import RopeScaling, linear_scaling, llama3_scaling

SIZES = {"hidden_dim": 32, "intermediate_dim": 64, "num_layers": 2, "num_heads": 4, "max_seq_len": 16}


def test_a_hand_count_of_parameters_agrees():
    config = LlamaConfig(**SIZES, num_kv_heads=2)
    attention = 32 * 32 + 2 * 32 * 16 + 32 * 32
    layer = attention + 3 * 32 * 64 + 2 * 32
    assert config.num_params(100) == 2 * 100 * 32 + 2 * layer + 32
    assert LlamaConfig(**SIZES, num_kv_heads=2, tie_embeddings=True).num_params(100) == 100 * 32 + 2 * layer + 32


def test_a_hand_count_of_operations_agrees():
    config = LlamaConfig(**SIZES)
    matrices = 2 * (4 * 32 * 32 + 3 * 32 * 64) + 100 * 32
    # A sequence of 3 looks at 1 + 2 + 3 positions, on average 2; queries by keys and weights by values.
    attention = 2 * 2 * 32 * 2
    assert config.flops_per_token(100, seq_len=3) == 3 * 2 * (matrices + attention)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_dim": 30}, r"hidden_dim=30 can't be split into num_heads=4 .* choose a multiple of 2 \* num_heads"),
        ({"hidden_dim": 12}, r"heads of an even size"),
        ({"num_kv_heads": 3}, r"num_heads=4 is not a multiple of num_kv_heads=3"),
        ({"num_layers": 0}, r"num_layers=0 is not a positive whole number"),
        ({"num_heads": 2.0}, r"num_heads=2.0 is not a positive whole number"),
        ({"max_seq_len": True}, r"max_seq_len=True is not a positive whole number"),
        ({"rope_theta": -1.0}, r"rope_theta=-1.0 is not a positive number"),
        ({"rope_theta": float("nan")}, r"rope_theta=nan is not a positive number"),
        ({"norm_eps": 0.0}, r"norm_eps=0.0 is not a positive number"),
        ({"norm_eps": "1e-5"}, r"norm_eps='1e-5' is not a positive number"),
        ({"head_size": 7}, r"head_size=7 is odd, and rotary positions turn pairs"),
        ({"head_size": 0}, r"head_size=0 is not a positive whole number"),
        ({"qkv_bias": 1}, r"qkv_bias=1 is not True or False"),
        ({"qk_norm": None}, r"qk_norm=None is not True or False"),
        ({"rope_scaling": 8.0}, r"rope_scaling=8.0 is no RopeScaling: write linear_scaling"),
        ({"tie_embeddings": "no"}, r"tie_embeddings='no' is not True or False"),
    ],
)
def test_sizes_that_do_not_fit_are_told_at_construction(change, message):
    with pytest.raises(ConfigurationError, match=message):
        LlamaConfig(**{**SIZES, **change})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear_scaling(0), r"factor=0 is not a positive number"),
        (lambda: llama3_scaling(low_freq_factor=4.0), r"low_freq_factor=4.0 is not below high_freq_factor=4.0"),
        (lambda: llama3_scaling(original_max_seq_len=float("inf")), r"original_max_seq_len=inf is not a positive"),
        (lambda: RopeScaling(kind="yarn", factor=2.0), r"kind='yarn' is neither 'linear' nor 'llama3'"),
        (
            lambda: RopeScaling(kind="linear", factor=2.0, low_freq_factor=1.0),
            r"kind='linear' takes no low_freq_factor",
        ),
    ],
)
def test_scalings_that_make_no_sense_are_told_at_construction(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_fields_that_were_added_later_change_no_recorded_fingerprint():
    encoded = encode(LlamaConfig(**SIZES), "model")["fields"]
    assert not {"head_size", "rope_scaling", "qkv_bias", "qk_norm"} & encoded.keys()
    assert "qk_norm" in encode(LlamaConfig(**SIZES, qk_norm=True), "model")["fields"]


def test_heads_of_their_own_size_need_not_divide_the_model():
    assert LlamaConfig(**{**SIZES, "hidden_dim": 30}, head_size=16).head_dim == 16
