"""Ids are those of the reference library, and what a tokenizer is gets recorded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import ConfigurationError
from marin.processing.tokenize.encoder import ByteEncoder, Encoder, EncodingRules, HuggingFaceEncoder, load_encoder
from marin.processing.tokenize.tokenizers import TokenizerSource, parse_tokenizer
from tests.processing.tokenize.small import BYTES, POEMS, stdlib_files, vocabulary, vocabulary_file

FILE = TokenizerSource(kind="file", location="tokenizer.json")
EXACT_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def encoder() -> HuggingFaceEncoder:
    return HuggingFaceEncoder(vocabulary().encode(), source=FILE, eos_token="<|endoftext|>")


def documents(encoder: Encoder, texts: list[str]) -> list[list[int]]:
    ids, lengths = encoder.encode(texts)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


def test_ids_are_those_of_the_reference_on_every_document_and_end_with_one_end_of_text():
    reference = tokenizers.Tokenizer.from_str(vocabulary())
    reference.encode_special_tokens = True
    texts = [*POEMS, *(path.read_text() for path in stdlib_files(20))]
    expected = [[*reference.encode(text, add_special_tokens=False).ids, 0] for text in texts]
    assert documents(encoder(), texts) == expected


def test_special_strings_in_a_document_are_ordinary_text():
    [ids] = documents(encoder(), ["a <|endoftext|> b <s>"])
    assert ids.count(0) == 1
    assert ids[-1] == 0
    assert 1 not in ids


@given(st.lists(EXACT_TEXT, min_size=1))
def test_decoding_gives_the_text_back(texts: list[str]):
    for each in (encoder(), ByteEncoder()):
        assert [each.decode(np.array(ids, np.uint32)) for ids in documents(each, texts)] == texts


def test_bytes_are_257_ids():
    assert documents(ByteEncoder(), ["aß", ""]) == [[97, 0xC3, 0x9F, 256], [256]]
    assert ByteEncoder().identity.vocab_size == 257
    assert load_encoder(BYTES).identity == ByteEncoder().identity


def test_no_documents_are_no_ids():
    ids, lengths = encoder().encode([])
    assert (len(ids), len(lengths)) == (0, 0)


def test_settings_that_a_file_carries_over_from_its_past_use_do_not_change_a_document(tmp_path: Path):
    plain = load_encoder(vocabulary_file(tmp_path / "plain"), eos_token="<|endoftext|>")
    cut = tokenizers.Tokenizer.from_str(vocabulary())
    cut.enable_truncation(3)
    cut.enable_padding(length=5_000)
    cut.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    cut.model.dropout = 0.5
    source = TokenizerSource(kind="file", location=str(tmp_path / "tokenizer.json"))
    cut.save(source.location)
    text = [POEMS[0] * 20] * 3
    assert documents(load_encoder(source, eos_token="<|endoftext|>"), text) == documents(plain, text)


def test_identity_tells_the_file_the_vocabulary_and_the_behaviour(tmp_path: Path):
    source = vocabulary_file(tmp_path)
    identity = load_encoder(source).identity
    assert identity.sha256 == hashlib.sha256(Path(source.location).read_bytes()).hexdigest()
    assert (identity.vocab_size, identity.eos_id, identity.eos_token, identity.bos_id) == (600, 0, "<|endoftext|>", 1)
    same = load_encoder(vocabulary_file(tmp_path / "copy", version="1.0")).identity
    other = load_encoder(vocabulary_file(tmp_path / "nfc", normalizer={"type": "Lowercase"})).identity
    assert identity.agrees_with(same)
    assert not identity.agrees_with(other)


def test_two_vocabularies_of_one_size_do_not_agree_although_the_probe_has_none_of_their_merges():
    [first, second] = (
        HuggingFaceEncoder(with_merge(vocabulary(), pair).encode(), source=FILE, eos_token="<|endoftext|>").identity
        for pair in ("zz", "qq")
    )
    assert first.vocab_size == second.vocab_size
    assert not first.agrees_with(second)


def with_merge(tokenizer: str, pair: str) -> str:
    """``tokenizer`` with one more merge, of two equal letters."""
    entries = json.loads(tokenizer)
    entries["model"]["vocab"][pair] = len(entries["model"]["vocab"])
    entries["model"]["merges"].append(list(pair))
    return json.dumps(entries)


def test_a_vocabulary_that_can_not_encode_every_text_is_refused():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"</s>": 0, "a": 1}, unk_token="[UNK]"))
    with pytest.raises(ConfigurationError, match=r"tokenizer\.json fails on ordinary text \(.*Missing \[UNK\]"):
        HuggingFaceEncoder(words.to_str().encode(), source=FILE)


def test_the_vocabulary_size_is_one_more_than_the_largest_id_also_where_ids_are_missing():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"</s>": 0, "a": 7}, unk_token="a"))
    assert HuggingFaceEncoder(words.to_str().encode(), source=FILE).identity.vocab_size == 8


def test_a_folder_is_read_as_its_tokenizer_json_and_config(tmp_path: Path):
    vocabulary_file(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<s>"}, "bos_token": null}')
    assert load_encoder(TokenizerSource(kind="file", location=str(tmp_path))).identity.eos_token == "<s>"


def test_the_end_of_text_token_can_be_chosen_and_must_exist(tmp_path: Path):
    source = vocabulary_file(tmp_path)
    assert load_encoder(source, eos_token="<s>").identity.eos_id == 1
    with pytest.raises(ConfigurationError, match=r"eos_token='</s>' is not in the vocabulary of .*tokenizer\.json"):
        load_encoder(source, eos_token="</s>")
    with pytest.raises(ConfigurationError, match="leave it out"):
        load_encoder(BYTES, eos_token="</s>")


def test_a_vocabulary_that_declares_no_end_of_text_is_refused_with_the_way_out():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(
        ConfigurationError, match=r"has none of the usual names: choose one with tokenized\(.*eos_token="
    ):
        HuggingFaceEncoder(words.to_str().encode(), source=FILE)


def test_an_empty_vocabulary_is_refused():
    empty = tokenizers.Tokenizer(tokenizers.models.BPE()).to_str().encode()
    with pytest.raises(ConfigurationError, match=r"tokenizer tokenizer\.json has an empty vocabulary: choose another"):
        HuggingFaceEncoder(empty, source=FILE, rules=EncodingRules(special_tokens="none"))


def test_a_file_that_is_absent_or_no_tokenizer_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"missing\.json can't be read \(No such file"):
        load_encoder(TokenizerSource(kind="file", location=str(tmp_path / "missing.json")))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"\(No such file.*\); did you mean 'tokenizer\.json'\? Or give a tok"):
        load_encoder(TokenizerSource(kind="file", location=str(tmp_path / "tokeniser.json")))
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"a\.json is not a tokenizer\.json"):
        load_encoder(TokenizerSource(kind="file", location=str(tmp_path / "a.json")))


def test_a_tokenizer_is_read_from_a_url_with_what_lies_beside_it(tmp_path: Path):
    files = fsspec.filesystem("memory")
    data = Path(vocabulary_file(tmp_path).location).read_bytes()
    files.pipe("memory://tokenizers/a/tokenizer.json", data)
    files.pipe("memory://tokenizers/a/tokenizer_config.json", b'{"eos_token": "<s>", "chat_template": "..."}')
    for place in ("memory://tokenizers/a/tokenizer.json", "memory://tokenizers/a", "memory://tokenizers/a/"):
        encoder = load_encoder(parse_tokenizer(place))
        assert isinstance(encoder, HuggingFaceEncoder)
        assert (encoder.file, encoder.identity.eos_token, encoder.chat_template) == (data, "<s>", "...")
    with pytest.raises(ConfigurationError, match=r"memory://none/tokenizer\.json is not there"):
        load_encoder(parse_tokenizer("memory://none"))


@pytest.mark.parametrize(
    ("rules", "around"),
    [
        (EncodingRules(), ([], [0])),
        (EncodingRules(special_tokens="bos_eos"), ([1], [0])),
        (EncodingRules(special_tokens="bos_eos", bos_token="<|endoftext|>", eos_token="<s>"), ([0], [1])),
        (EncodingRules(special_tokens="none"), ([], [])),
        (EncodingRules(special_tokens="template"), ([1, 0], [1])),
    ],
)
def test_what_surrounds_a_document_is_what_was_asked_for(rules: EncodingRules, around: tuple[list[int], list[int]]):
    tokenizer = tokenizers.Tokenizer.from_str(vocabulary())
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> <|endoftext|> $A <s>", special_tokens=[("<s>", 1), ("<|endoftext|>", 0)]
    )
    made = HuggingFaceEncoder(tokenizer.to_str().encode(), source=FILE, rules=rules)
    bare = [tokenizer.encode(poem, add_special_tokens=False).ids for poem in ("x", "Roses", "")]
    assert documents(made, ["x", "Roses", ""]) == [[*around[0], *ids, *around[1]] for ids in bare]
    assert (list(made.framing.prefix), list(made.framing.suffix)) == around
    if rules.special_tokens == "template":
        assert documents(made, ["Roses"]) == [tokenizer.encode("Roses").ids]


def test_special_strings_are_special_tokens_where_that_is_asked_for():
    made = HuggingFaceEncoder(vocabulary().encode(), source=FILE, rules=EncodingRules(parse_special=True))
    [ids] = documents(made, ["a<s>b"])
    assert ids.count(1) == 1
    plain = HuggingFaceEncoder(vocabulary().encode(), source=FILE)
    assert made.identity == plain.identity  # the tokenizer is the same


@pytest.mark.parametrize("policy", ["bos_eos", "template"])
def test_bytes_have_no_begin_of_text_and_no_template(policy: Any):
    with pytest.raises(ConfigurationError, match="'bytes' has no beginning-of-text token and no template"):
        ByteEncoder(EncodingRules(special_tokens=policy))
    assert documents(ByteEncoder(EncodingRules(special_tokens="none")), ["ab"]) == [[97, 98]]


def test_a_vocabulary_without_the_asked_for_begin_of_text_is_refused():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "</s>": 1}, unk_token="a"))
    with pytest.raises(ConfigurationError, match="declares no beginning-of-text token, which special_tokens='bos_eos'"):
        HuggingFaceEncoder(words.to_str().encode(), source=FILE, rules=EncodingRules(special_tokens="bos_eos"))


def test_messages_call_the_tokenizer_of_another_step_by_its_id(tmp_path: Path):
    source = TokenizerSource(kind="file", location=str(tmp_path / "none"), called="tokenizers/poems@2026.07.01")
    with pytest.raises(ConfigurationError, match=r"tokenizer 'tokenizers/poems@2026\.07\.01'"):
        load_encoder(source)
