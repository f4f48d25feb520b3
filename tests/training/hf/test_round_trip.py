"""Ours to Hugging Face's files and back: the same bits, without torch."""

import dataclasses
import json
import os
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from marin.errors import ConfigurationError, DataError, NonFiniteLossError, TokenizerMismatchError
from marin.processing.input_files import file_sha256
from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.tokenizers import parse_tokenizer
from marin.training.hf.export import export_checkpoint, export_hf
from marin.training.models.gpt2_config import Gpt2Config
from tests.training.hf.models import MODELS, VOCAB, arrays_of, imported, lively_params, named, same_bits

BYTES = load_encoder(parse_tokenizer("bytes")).identity
TIED = MODELS["tied"]


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_a_model_comes_back_bit_by_bit(config, tmp_path):
    params = lively_params(config)
    written = export_hf(params, config, str(tmp_path / "hf"), tokenizer=BYTES, max_shard_bytes=60_000)
    assert "model.safetensors.index.json" in written.files
    checkpoint = imported(tmp_path / "hf", tmp_path / "back")
    checkpoint.verify()
    assert checkpoint.config == config
    assert (checkpoint.vocab_size, checkpoint.num_params) == (VOCAB, config.num_params(VOCAB))
    assert same_bits(arrays_of(checkpoint), named(params))
    assert same_bits(named(checkpoint.load_params()), named(params))
    again = export_checkpoint(checkpoint, str(tmp_path / "again"), max_shard_bytes=60_000)
    assert again.files == written.files
    for file in written.files:
        assert Path(again.folder, file).read_bytes() == Path(written.folder, file).read_bytes()


def test_an_imported_model_has_seen_nothing_and_says_where_it_is_from(tmp_path):
    export_hf(lively_params(TIED), TIED, str(tmp_path / "hf"))
    checkpoint = imported(tmp_path / "hf", tmp_path / "back")
    assert (checkpoint.steps, checkpoint.tokens_seen, checkpoint.train_loss, checkpoint.hf_dir) == (0, 0, None, None)
    assert (checkpoint.history(), checkpoint.metrics()) == ([], {})
    assert checkpoint.source == str(tmp_path / "hf")
    # By it a training that begins with the model knows that it is still the same.
    assert checkpoint.params_sha256 == file_sha256(str(tmp_path / "back/params.safetensors"))


@pytest.mark.parametrize(("dtype", "digits"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_the_type_that_was_asked_for_is_in_the_tensors_and_in_the_config(dtype, digits, tmp_path):
    params = lively_params(TIED)
    written = export_hf(params, TIED, str(tmp_path / "hf"), dtype=dtype)
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == dtype
    assert "lm_head.weight" not in load_file(tmp_path / "hf/model.safetensors")
    assert config["tie_word_embeddings"] is True
    assert written.files == ("config.json", "generation_config.json", "model.safetensors")
    back, before = arrays_of(imported(tmp_path / "hf", tmp_path / "back")), named(params)
    for name, array in before.items():
        assert back[name].dtype == np.float32
        assert (back[name] == array.astype(jnp.dtype(dtype)).astype(np.float32)).all()
        np.testing.assert_allclose(back[name], array, rtol=digits, atol=1e-7)


def test_numbers_that_float16_does_not_hold_are_refused_and_nothing_is_left(tmp_path):
    params = lively_params(TIED)
    params["norm"] = params["norm"] * 1e5
    with pytest.raises(NonFiniteLossError, match=r"model.norm.weight .* float16, .* choose bfloat16"):
        export_hf(params, TIED, str(tmp_path / "hf"), dtype="float16")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_refused_and_an_empty_one_is_taken(tmp_path):
    params = lively_params(TIED)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    for taken in ("full", "full/notes.txt"):
        with pytest.raises(ConfigurationError, match=r"not an empty folder: nothing is written"):
            export_hf(params, TIED, str(tmp_path / taken))
    (tmp_path / "empty").mkdir()
    export_hf(params, TIED, str(tmp_path / "empty"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]


def test_what_a_killed_export_has_left_is_not_in_the_way_nor_is_a_link_to_an_empty_folder(tmp_path):
    (tmp_path / f"disk.partial-{os.getpid()}").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    export_hf(lively_params(TIED), TIED, str(tmp_path / "link"))
    assert (tmp_path / "disk/config.json").exists()
    assert (tmp_path / "link").is_symlink()


def test_a_model_without_a_form_there_is_told_so(tmp_path):
    both = dataclasses.replace(TIED, qkv_bias=True, qk_norm=True)
    with pytest.raises(ConfigurationError, match=r"qkv_bias=True together with qk_norm=True has no form"):
        export_hf(lively_params(both), both, str(tmp_path / "hf"))

    class Mine:
        max_seq_len = 8

    with pytest.raises(ConfigurationError, match=r"Mine has no form in Hugging Face's files: only LlamaConfig and"):
        export_hf({"embed_tokens": np.zeros((2, 2), np.float32)}, Mine(), str(tmp_path / "hf"))


def exported(tmp_path, config=TIED, **changes):
    """A folder of theirs, its config changed."""
    folder = tmp_path / "hf"
    export_hf(lively_params(config), config, str(folder))
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


def test_tensors_that_are_no_parameters_are_left_out_and_others_refused(tmp_path):
    folder = exported(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    harmless = {
        "lm_head.weight": tensors["model.embed_tokens.weight"],
        "model.layers.0.self_attn.rotary_emb.inv_freq": tensors["model.norm.weight"],
    }
    save_file({**tensors, **harmless}, folder / "model.safetensors")
    imported(folder, tmp_path / "one")
    save_file({**tensors, "model.layers.0.self_attn.sinks": np.zeros(4, np.float32)}, folder / "model.safetensors")
    with pytest.raises(ConfigurationError, match=r"has the tensor model.layers.0.self_attn.sinks, for which"):
        imported(folder, tmp_path / "two")


@pytest.mark.parametrize(("name", "embedding"), [("tied", "model.embed_tokens"), ("gpt-2", "transformer.wte")])
def test_a_head_that_is_said_to_be_the_embedding_must_be_it(name, embedding, tmp_path):
    params = lively_params(MODELS[name])
    export_hf(params, MODELS[name], str(tmp_path / "hf"))
    tensors = load_file(tmp_path / "hf/model.safetensors")
    same = tensors[f"{embedding}.weight"]
    save_file({**tensors, "lm_head.weight": same}, tmp_path / "hf/model.safetensors")
    assert same_bits(arrays_of(imported(tmp_path / "hf", tmp_path / "back")), named(params))
    save_file({**tensors, "lm_head.weight": 2 * same}, tmp_path / "hf/model.safetensors")
    with pytest.raises(ConfigurationError, match=r"has a lm_head.weight other than its embedding, and config"):
        imported(tmp_path / "hf", tmp_path / "other")


def test_the_file_of_all_tensors_comes_before_shards_that_were_left_beside_it(tmp_path):
    params = lively_params(TIED)
    export_hf(lively_params(TIED), TIED, str(tmp_path / "hf"), max_shard_bytes=60_000)
    export_hf({**params, "norm": 3 * params["norm"]}, TIED, str(tmp_path / "newer"))
    (tmp_path / "newer/model.safetensors").rename(tmp_path / "hf/model.safetensors")
    back = arrays_of(imported(tmp_path / "hf", tmp_path / "back"))
    np.testing.assert_array_equal(back["norm"], 3 * params["norm"])


def test_files_without_the_outer_name_and_with_masks_are_read_as_those_of_gpt2_are(tmp_path):
    config = MODELS["gpt-2"]
    folder = exported(tmp_path, config)
    tensors = {
        name.removeprefix("transformer."): array for name, array in load_file(folder / "model.safetensors").items()
    }
    save_file({**tensors, "h.0.attn.bias": np.ones((1, 1, 8, 8), np.float32)}, folder / "model.safetensors")
    assert same_bits(arrays_of(imported(folder, tmp_path / "back")), named(lively_params(config)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 257}, r"model.embed_tokens.weight gives \[300, 64\], but config.json means \[257, 64\]"),
        ({"vocab_size": 100}, r"the tokenizer bytes has 257 ids, the model 100: they do not belong together"),
        ({"num_hidden_layers": 3}, r"has no tensor model.layers.2.input_layernorm.weight"),
        ({"tie_word_embeddings": False}, r"has no tensor lm_head.weight"),
    ],
)
def test_a_config_that_is_not_that_of_the_tensors_is_told(change, message, tmp_path):
    with pytest.raises(DataError, match=message):
        imported(exported(tmp_path, **change), tmp_path / "back")


def test_a_file_is_no_folder_of_a_model(tmp_path):
    (tmp_path / "model").write_text("{}")
    with pytest.raises(DataError, match=r"model/config.json is not there: give the folder of a model"):
        imported(tmp_path / "model", tmp_path / "out")


def test_a_folder_without_tensors_says_what_it_has(tmp_path):
    folder = exported(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"neither model.safetensors nor .*; pytorch_model.bin is a pickle, .* convert"):
        imported(folder, tmp_path / "back")
    with pytest.raises(DataError, match=r"config.json is not there: give the folder of a model"):
        imported(tmp_path, tmp_path / "back")


def test_quantized_numbers_are_refused(tmp_path):
    folder = exported(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = np.ones(64, np.int8)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(DataError, match=r"the tensor model.norm.weight is I8: only F32, BF16, F16"):
        imported(folder, tmp_path / "back")


def test_a_model_without_a_tokenizer_asks_for_one(tmp_path):
    folder = exported(tmp_path)
    with pytest.raises(ConfigurationError, match=r"has no tokenizer.json: say which .* hf_model\(..., tokenizer=...\)"):
        imported(folder, tmp_path / "back", tokenizer=None)


def test_the_bytes_are_a_tokenizer_there_too(tmp_path):
    export_hf(lively_params(TIED), TIED, str(tmp_path / "hf"), tokenizer=BYTES)
    encoder = load_encoder(parse_tokenizer(tmp_path / "hf"))
    text = "naïve — 東京\n\x00"
    ids, _ = encoder.encode([text])
    assert list(ids) == [*text.encode(), 256]
    assert encoder.decode(ids) == text
    for name in ("config.json", "generation_config.json"):
        entries = json.loads((tmp_path / "hf" / name).read_text())
        assert (entries["eos_token_id"], entries["bos_token_id"]) == (256, None)


def test_another_tokenizer_than_the_models_own_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    export_hf(lively_params(TIED), TIED, str(tmp_path / "hf"), tokenizer=BYTES)
    checkpoint = imported(tmp_path / "hf", tmp_path / "back", tokenizer=None)
    (tmp_path / "theirs/tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerMismatchError, match=r"theirs/tokenizer.json is not the tokenizer that the model was"):
        export_checkpoint(checkpoint, str(tmp_path / "out"), tokenizer_dir=str(tmp_path / "theirs"))
    assert not (tmp_path / "out").exists()


def test_the_files_of_a_models_own_tokenizer_go_with_it(tmp_path):
    config = Gpt2Config(hidden_dim=8, num_layers=1, num_heads=1, max_seq_len=8)
    export_hf(lively_params(config), config, str(tmp_path / "hf"), tokenizer=BYTES, chat_template="{{ messages }}")
    declared = json.loads((tmp_path / "hf/tokenizer_config.json").read_text())
    assert (declared["eos_token"], declared["model_max_length"]) == ("<|endoftext|>", 8)
    checkpoint = imported(tmp_path / "hf", tmp_path / "back", tokenizer=None)
    assert (checkpoint.tokenizer.eos_id, checkpoint.tokenizer.vocab_size) == (256, 257)
    written = export_checkpoint(checkpoint, str(tmp_path / "again"))
    assert written.has_tokenizer
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert Path(written.folder, name).read_bytes() == (tmp_path / "hf" / name).read_bytes()
