import dataclasses
import json

import pytest

from marin.execution.results import to_json
from marin.experiment import models
from marin.training.models.model import is_model_config, model_class, restored_model

NAMED = [name for name in models.__all__ if name.startswith(("llama_", "gpt2_"))]


@pytest.mark.parametrize("name", NAMED)
def test_every_named_model_is_a_config_that_can_be_changed(name):
    model = getattr(models, name)
    assert is_model_config(model)
    assert dataclasses.replace(model, max_seq_len=128).max_seq_len == 128


def test_llama_nano_is_as_small_as_promised_and_takes_long_sequences():
    nano = models.llama_nano
    assert (nano.hidden_dim, nano.intermediate_dim, nano.num_heads, nano.num_layers) == (32, 128, 2, 2)
    assert nano.max_seq_len == 2048


@pytest.mark.parametrize("name", NAMED)
def test_a_checkpoint_gives_every_named_model_back(name):
    model = getattr(models, name)
    assert restored_model(model_class(model), json.loads(json.dumps(to_json(model)))) == model


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("llama_nano", 2),
        ("llama_30m", 34),
        ("llama_60m", 58),
        ("llama_150m", 134),
        ("llama_300m", 302),
        ("llama_600m", 605),
        ("llama_1_4b", 1414),
    ],
)
def test_names_and_descriptions_tell_the_size(name, millions):
    assert getattr(models, name).num_params(32_000) / 1e6 == pytest.approx(millions, rel=0.05)


@pytest.mark.parametrize(
    ("name", "vocab", "published"),
    [
        ("llama_1b", 128_256, 1_235_814_400),
        ("llama_3b", 128_256, 3_212_749_824),
        ("llama_8b", 128_256, 8_030_261_248),
        ("gpt2_124m", 50_257, 124_439_808),
        ("gpt2_355m", 50_257, 354_823_168),
        ("gpt2_774m", 50_257, 774_030_080),
        ("gpt2_1_5b", 50_257, 1_557_611_200),
    ],
)
def test_models_that_others_published_have_exactly_as_many_parameters(name, vocab, published):
    assert getattr(models, name).num_params(vocab) == published
