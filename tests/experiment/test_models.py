import dataclasses

import pytest

from marin.experiment import models
from marin.training.models.llama_config import LlamaConfig

NAMED = [name for name in models.__all__ if name != "LlamaConfig"]


@pytest.mark.parametrize("name", NAMED)
def test_every_named_model_is_a_config_that_can_be_changed(name):
    model = getattr(models, name)
    assert isinstance(model, LlamaConfig)
    assert dataclasses.replace(model, max_seq_len=128).max_seq_len == 128


def test_llama_nano_is_as_small_as_promised_and_takes_long_sequences():
    nano = models.llama_nano
    assert (nano.hidden_dim, nano.intermediate_dim, nano.num_heads, nano.num_layers) == (32, 128, 2, 2)
    assert nano.max_seq_len == 2048


@pytest.mark.parametrize(("name", "millions"), [("llama_nano", 2), ("llama_30m", 34), ("llama_150m", 134)])
def test_names_and_descriptions_tell_the_size(name, millions):
    assert getattr(models, name).num_params(32_000) / 1e6 == pytest.approx(millions, rel=0.05)
