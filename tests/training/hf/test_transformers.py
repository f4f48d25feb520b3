"""The models that transformers loads and saves, against ours: the same logits. Needs torch and transformers."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.tokenizers import parse_tokenizer
from marin.training.hf.export import export_hf
from marin.training.models.compute import Compute
from marin.training.models.implementation import implementation_of
from marin.training.models.inputs import Inputs
from tests.training.hf.models import MODELS, VOCAB, imported, lively_params

pytestmark = pytest.mark.heavy

TOLERANCE = 5e-5
"""Largest difference of two logits, of which the largest are at least ``SCALE``."""

SCALE = 5.0

TOKENS = np.random.default_rng(0).integers(0, VOCAB, (2, 200))


def our_logits(params, config, tokens=TOKENS):
    model, compute = implementation_of(config), Compute(dtype=jnp.dtype("float32"), attention="reference")
    return np.asarray(model.hidden_states(params, Inputs(jnp.asarray(tokens)), config, compute) @ model.head(params))


def their_logits(model, tokens=TOKENS):
    import torch  # noqa: PLC0415

    with torch.no_grad():
        return model.eval()(torch.from_numpy(tokens)).logits.float().numpy()


@pytest.mark.parametrize("max_shard_bytes", [10**9, 60_000], ids=["one file", "shards"])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_an_exported_model_gives_the_same_logits_there(config, max_shard_bytes, tmp_path):
    import transformers  # noqa: PLC0415

    params = lively_params(config)
    export_hf(params, config, str(tmp_path / "hf"), max_shard_bytes=max_shard_bytes)
    loaded, about = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(about.values()), about
    theirs = their_logits(loaded)
    assert np.abs(theirs).max() >= SCALE
    np.testing.assert_allclose(our_logits(params, config), theirs, atol=TOLERANCE)


@pytest.mark.parametrize("left_out", [("rope_parameters",), ("rope_theta", "rope_scaling")], ids=["legacy", "new"])
def test_either_name_of_the_rotary_keys_is_enough_there(left_out, tmp_path):
    import transformers  # noqa: PLC0415

    config = MODELS["llama3 rope"]
    params = lively_params(config)
    export_hf(params, config, str(tmp_path / "hf"))
    path = tmp_path / "hf/config.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k not in left_out}))
    theirs = their_logits(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf"))
    np.testing.assert_allclose(our_logits(params, config), theirs, atol=TOLERANCE)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_type_there_is_the_one_that_was_asked_for(dtype, tmp_path):
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    config = MODELS["tied"]
    export_hf(lively_params(config), config, str(tmp_path / "hf"), dtype=dtype)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype="auto")
    assert {p.dtype for p in loaded.parameters()} == {getattr(torch, dtype)}


THEIRS = {
    "llama": ("LlamaConfig", {"num_key_value_heads": 2}),
    "llama, tied": ("LlamaConfig", {"tie_word_embeddings": True, "rope_theta": 1000.0}),
    "llama3 rope": (
        "LlamaConfig",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "linear rope": ("LlamaConfig", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "qwen 2": ("Qwen2Config", {"num_key_value_heads": 2}),
    "qwen 3": ("Qwen3Config", {"num_key_value_heads": 2, "head_dim": 24, "tie_word_embeddings": True}),
    "gpt-2": ("GPT2Config", {}),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kind", "changes"), THEIRS.values(), ids=THEIRS)
def test_a_model_saved_there_gives_the_same_logits_here(kind, changes, dtype, tmp_path):
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
    }
    if kind == "GPT2Config":
        sizes = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}
    made = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, kind)(vocab_size=VOCAB, **sizes, **changes)
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        made.get_output_embeddings().weight.mul_(5)
    made = made.to(getattr(torch, dtype))
    made.save_pretrained(tmp_path / "theirs", max_shard_size="100KB")
    assert (tmp_path / "theirs/model.safetensors.index.json").exists()
    checkpoint = imported(tmp_path / "theirs", tmp_path / "ours")
    # Anew, as the frequencies of a model that was cast are cast too.
    theirs = their_logits(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs", dtype=torch.float32))
    assert np.abs(theirs).max() >= SCALE
    np.testing.assert_allclose(our_logits(checkpoint.load_params(), checkpoint.config), theirs, atol=TOLERANCE)


def test_the_bytes_are_the_same_tokenizer_there(tmp_path):
    import transformers  # noqa: PLC0415

    config = MODELS["tied"]
    encoder = load_encoder(parse_tokenizer("bytes"))
    export_hf(lively_params(config), config, str(tmp_path / "hf"), tokenizer=encoder.identity)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "naïve  — 東京\r\n\n 'tis\x00"
    assert loaded(text)["input_ids"] == list(text.encode())
    assert loaded.decode(list(text.encode())) == text
    assert (loaded.eos_token_id, loaded.bos_token_id) == (256, None)
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "hf")
    assert (generation.eos_token_id, generation.bos_token_id) == (256, None)
