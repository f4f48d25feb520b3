"""What a ``config.json`` says, as real ones of the hub say it, and what is refused."""

import dataclasses

import pytest

from marin.errors import ConfigurationError, DataError
from marin.experiment import models
from marin.training.hf.config_json import has_hf_form, read_config, written_config
from tests.training.hf.models import MODELS

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
LLAMA3_ROPE = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "use_sliding_window": False,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_ctx": 1024}


def read(entries, **changes):
    return read_config({**entries, **changes}, origin="hf://org/model/config.json")


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 500000.0, "rope_scaling": LLAMA3_ROPE},
        {"rope_parameters": {**LLAMA3_ROPE, "rope_theta": 500000.0}},
        {
            "rope_theta": 500000.0,
            "rope_scaling": LLAMA3_ROPE,
            "rope_parameters": {**LLAMA3_ROPE, "rope_theta": 500000.0},
        },
    ],
    ids=["legacy keys", "new keys", "both"],
)
def test_llama_3_1_8b_is_the_named_model(rope):
    described = read(LLAMA, **rope)
    assert (described.config, described.vocab_size) == (models.llama_8b, 128256)


def test_gpt2_small_is_the_named_model():
    assert read(GPT2, vocab_size=50257, activation_function="gelu_new").config == models.gpt2_124m


def test_qwen2_has_biases_and_a_window_that_is_not_used():
    config = read(QWEN2).config
    assert (config.qkv_bias, config.qk_norm, config.tie_embeddings, config.kv_heads) == (True, False, True, 2)
    assert config.num_params(151936) == 494_032_768  # as published


def test_qwen3_has_normed_heads_of_a_size_of_their_own():
    config = read({**QWEN2, "model_type": "qwen3", "head_dim": 128}, hidden_size=1024, num_attention_heads=16).config
    assert (config.qk_norm, config.qkv_bias, config.head_dim) == (True, False, 128)


@pytest.mark.parametrize("kind", ["linear", "default"])
def test_older_names_of_the_scaling_are_read(kind):
    scaling = read(LLAMA, rope_scaling={"type": kind, "factor": 2.0}).config.rope_scaling
    assert scaling is None if kind == "default" else (scaling.kind, scaling.factor) == ("linear", 2.0)


@pytest.mark.parametrize(
    ("entries", "change", "message"),
    [
        (LLAMA, {"model_type": "mixtral"}, r"model_type='mixtral' can't be imported: only 'llama'"),
        (LLAMA, {"model_type": None}, r"model_type=None can't be imported"),
        (LLAMA, {"model_type": ["llama"]}, r"model_type=\['llama'\] can't be imported"),
        (LLAMA, {"hidden_act": "gelu"}, r"hidden_act='gelu' is not supported"),
        (LLAMA, {"attention_bias": True}, r"attention_bias=True is not supported"),
        (LLAMA, {"mlp_bias": True}, r"mlp_bias=True is not supported"),
        (LLAMA, {"quantization_config": {"bits": 4}}, r"quantization_config=\{'bits': 4\} is not supported"),
        (LLAMA, {"rope_scaling": {"type": "yarn", "factor": 4.0}}, r"rope_scaling.rope_type='yarn' is not supported"),
        (LLAMA, {"rope_parameters": {"rope_type": "dynamic"}}, r"rope_parameters.rope_type='dynamic' is not"),
        (LLAMA, {"rope_parameters": {"partial_rotary_factor": 0.5}}, r"partial_rotary_factor=0.5 is not supported"),
        (QWEN2, {"use_sliding_window": True}, r"use_sliding_window=True is not supported"),
        (QWEN2, {"layer_types": ["full_attention", "sliding_attention"]}, r"layer_types='sliding_attention' is not"),
        (GPT2, {"activation_function": "relu"}, r"activation_function='relu' is not supported"),
        (GPT2, {"scale_attn_by_inverse_layer_idx": True}, r"scale_attn_by_inverse_layer_idx=True is not supported"),
        (GPT2, {"tie_word_embeddings": False}, r"tie_word_embeddings=False is not supported"),
    ],
)
def test_what_the_model_would_compute_otherwise_is_refused_by_key_and_value(entries, change, message):
    with pytest.raises(ConfigurationError, match=message):
        read(entries, **change)


@pytest.mark.parametrize(
    ("entries", "change", "message"),
    [
        (LLAMA, {"hidden_size": None}, r"config.json has no hidden_size: it is not whole"),
        (QWEN2, {"num_key_value_heads": None}, r"has no num_key_value_heads"),
        (QWEN2, {"model_type": "qwen3"}, r"has no head_dim"),
        (
            LLAMA,
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            r"says rope_theta=10000.0 and, in",
        ),
        (LLAMA, {"rope_scaling": LLAMA3_ROPE, "rope_parameters": {"rope_type": "default"}}, r"say different things"),
        (LLAMA, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, r"has no 'low_freq_factor'"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": None}}, r"config.json holds what it can't in a model"),
        (LLAMA, {"rope_scaling": [1]}, r"config.json holds what it can't in a model"),
        (LLAMA, {"rms_norm_eps": "small"}, r"config.json holds what it can't in a model"),
        (LLAMA, {"vocab_size": "128256"}, r"vocab_size='128256' is no number of tokens"),
    ],
)
def test_a_config_that_is_not_whole_or_speaks_against_itself_is_told(entries, change, message):
    with pytest.raises(DataError, match=message):
        read(entries, **change)


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_what_is_written_is_read_back_with_either_name_of_the_rotary_keys(config):
    written = written_config(config, vocab_size=300, dtype="float32")
    for left_out in ((), ("rope_parameters",), ("rope_theta", "rope_scaling")):
        entries = {key: value for key, value in written.items() if key not in left_out}
        assert read(entries).config == config
    assert has_hf_form(config)


def test_a_model_of_ones_own_has_no_form():
    @dataclasses.dataclass(frozen=True)
    class Mine:
        width: int = 1

    assert not has_hf_form(Mine())
