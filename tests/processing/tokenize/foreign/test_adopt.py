"""Caches of other tools become artifacts: what is read from them, what has to be given, what is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin.errors import ArtifactTypeError, ConfigurationError, DataError, RunError, TokenizerMismatchError
from marin.execution import ArtifactStep, load, resolve
from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.encoder import ByteEncoder
from marin.processing.tokenize.foreign.recognise import LAYOUTS
from marin.processing.tokenize.open_stream import open_split, open_stream
from marin.processing.tokenize.tokenize import SplitSummary, TokenizedCache
from marin.testing import temporary_store
from tests.processing.tokenize.foreign.files import GOLDEN, copy_of, write_llmc, write_megatron, write_nanogpt
from tests.processing.tokenize.foreign.texts import TEXTS, ids
from tests.processing.tokenize.small import config, tree, vocabulary_file, write_poems

BYTES = {"tokenizer": "bytes"}
TOKENS = {split: sum(len(ids(text)) for text in texts) for split, texts in TEXTS.items()}
TEXT_BYTES = {split: TOKENS[split] - len(texts) for split, texts in TEXTS.items()}


def adopted(path: Path, **given: Any) -> TokenizedCache:
    return TokenizedCache.from_source(str(path), {**BYTES, **given})


@pytest.mark.parametrize("name", ["megatron", "megatron-int32", "datatrove-masked", "arrow", "parquet"])
def test_what_each_tool_wrote_is_counted(name: str):
    cache = adopted(GOLDEN / name)
    assert cache.layout == name.partition("-")[0]
    assert cache.dtype == ("uint16" if name == "megatron" else "uint32")
    assert cache.tokenizer == ByteEncoder().identity
    empty = {"train": 1 if name.startswith("megatron") else 0, "validation": 0}
    assert cache.splits == {
        split: SplitSummary(
            tokens=TOKENS[split],
            documents=len(texts),
            text_bytes=TEXT_BYTES[split],
            empty_documents=empty[split],
        )
        for split, texts in TEXTS.items()
    }
    cache.verify()


def test_the_same_documents_have_the_same_digest_whoever_wrote_them(tmp_path: Path):
    wide = {
        adopted(GOLDEN / name).content_sha256 for name in ("megatron-int32", "datatrove-masked", "arrow", "parquet")
    }
    assert len(wide) == 1
    texts = [write_poems(tmp_path / f"{split}.jsonl", found) for split, found in TEXTS.items()]
    made = tokenize(config(tmp_path / "out", texts[0], validation=config(tmp_path, texts[1]).source))
    assert made.content_sha256 == adopted(GOLDEN / "megatron").content_sha256


def test_the_digest_is_of_tokens_and_lengths_also_of_documents_longer_than_what_is_read_at_once(tmp_path: Path):
    lengths = [(1 << 20) + 5, 7, 1 << 20, 3]
    write_megatron(tmp_path / "a", [[number] * length for number, length in enumerate(lengths)], range(5))
    tokens = hashlib.sha256(np.repeat(np.arange(4), lengths).astype("<u2").tobytes()).hexdigest()
    of_lengths = hashlib.sha256(np.array(lengths, "<i8").tobytes()).hexdigest()
    whole = f"uint16\ntrain {tokens} {of_lengths}"
    assert adopted(tmp_path).content_sha256 == hashlib.sha256(whole.encode()).hexdigest()


def test_a_tokenizer_that_lies_beside_the_tokens_is_taken():
    cache = TokenizedCache.from_source(str(GOLDEN / "datatrove"), {})
    assert (cache.vocab_size, cache.tokenizer.eos_token, cache.layout) == (257, "<|endoftext|>", "datatrove")
    assert cache.splits["train"].text_bytes == TEXT_BYTES["train"]


def test_a_tokenizer_that_the_side_file_names_is_taken():
    assert TokenizedCache.from_source(str(GOLDEN / "datatrove-masked"), {}).tokenizer == ByteEncoder().identity


def test_a_named_tokenizer_that_is_not_here_must_be_given(tmp_path: Path):
    path = copy_of("datatrove", tmp_path / "cache")
    (path / "tokenizer.json").unlink()
    with pytest.raises(
        ConfigurationError, match=r"names the tokenizer tokenizer\.json, which can't be loaded here .* config=\{"
    ):
        TokenizedCache.from_source(str(path), {})


def test_files_that_name_two_tokenizers_are_refused(tmp_path: Path):
    path = copy_of("datatrove-masked", tmp_path / "cache")
    (path / "train.ds.metadata").write_text("gpt2|4\n147\n")
    with pytest.raises(DataError, match=r"made by several tokenizers.*bytes, gpt2"):
        TokenizedCache.from_source(str(path), {})


def test_a_cache_that_names_no_tokenizer_says_how_to_give_one():
    with pytest.raises(
        ConfigurationError,
        match=r"\(megatron\) does not say which tokenizer .* config=\{'tokenizer': \.\.\.\}: the path",
    ):
        TokenizedCache.from_source(str(GOLDEN / "megatron"), {})


@pytest.mark.parametrize("as_a", ["path", "text", "identity", "fields"])
def test_a_tokenizer_can_be_given_in_each_way(tmp_path: Path, as_a: str):
    file = tmp_path / "t" / "tokenizer.json"
    vocabulary_file(file.parent)
    first = adopted(GOLDEN / "megatron", tokenizer=file).tokenizer
    ways: dict[str, Any] = {"path": file, "text": str(file), "identity": first, "fields": dataclasses.asdict(first)}
    cache = adopted(GOLDEN / "megatron", tokenizer=ways[as_a])
    assert (cache.tokenizer, cache.vocab_size) == (first, 600)


def test_a_given_tokenizer_that_contradicts_the_one_beside_is_refused():
    with pytest.raises(TokenizerMismatchError, match=r"has a tokenizer\.json beside its tokens .* says bytes"):
        adopted(GOLDEN / "datatrove")


def test_a_tokenizer_that_is_none_is_refused():
    with pytest.raises(
        ArtifactTypeError, match=r"config\['tokenizer'\] is not a TokenizerIdentity.*Give it as config="
    ):
        adopted(GOLDEN / "megatron", tokenizer={"kind": "file"})
    with pytest.raises(ConfigurationError, match="config has no vocab; it may hold 'tokenizer', 'eos_token', 'layout'"):
        adopted(GOLDEN / "megatron", vocab=3)


def test_an_id_that_the_tokenizer_lacks_is_told_with_its_place(tmp_path: Path):
    write_nanogpt(tmp_path / "train.bin", [5] * 3_000_000 + [257, 5])
    with pytest.raises(
        DataError,
        match=r"token 3,000,000 of the train split is id 257, which is not below the vocabulary size 257 of bytes",
    ):
        adopted(tmp_path)


def test_a_negative_id_is_told_with_its_place(tmp_path: Path):
    write_megatron(tmp_path / "a", [[1, 2], [3, -4]], [0, 1, 2], code=4)
    with pytest.raises(DataError, match="token 3 of the train split is -4, which is no id"):
        adopted(tmp_path)
    write_megatron(tmp_path / "a", [[1, 1 << 40], [3]], [0, 1, 2], code=5)
    with pytest.raises(DataError, match="token 1 of the train split is 1099511627776, which is no id"):
        adopted(tmp_path)


def test_ids_too_narrow_for_the_vocabulary_are_refused():
    fields = dataclasses.asdict(ByteEncoder().identity) | {"vocab_size": 128_256}
    with pytest.raises(DataError, match=r"ids of 16 bits, and bytes has 128,256, which do not fit"):
        adopted(GOLDEN / "megatron", tokenizer=fields)


def test_text_is_not_measured_without_the_tokenizer():
    fields = dataclasses.asdict(ByteEncoder().identity)
    assert adopted(GOLDEN / "megatron", tokenizer=fields).splits["train"].text_bytes == 0


def test_adopting_copies_nothing_and_the_trainer_reads_the_source(tmp_path: Path):
    path = copy_of("megatron", tmp_path / "cache")
    before = tree(path)
    with temporary_store() as store:
        step = ArtifactStep.adopt(
            name="tokenized/theirs", version="2026.07.01", source=str(path), kind=TokenizedCache, config=BYTES
        )
        cache = resolve(step)
        assert (cache.path, cache.layout) == (str(path), "megatron")
        assert load(step) == cache
        assert open_split(cache, "validation").tokens(0, 10).tolist() == ids(TEXTS["validation"][0])
        small = [file for file in store.path.rglob("*") if file.is_file()]
        assert not [file for file in small if file.suffix in (".bin", ".idx")]
    assert tree(path) == before


def test_a_missing_tokenizer_is_an_error_when_it_is_built_not_when_the_handle_is_made():
    with temporary_store():
        step = ArtifactStep.adopt(
            name="tokenized/theirs", version="2026.07.01", source=str(GOLDEN / "arrow"), kind=TokenizedCache
        )
        with pytest.raises(RunError, match="does not say which tokenizer made it"):
            resolve(step)


def replaced(path: Path) -> None:
    write_nanogpt(path / "train.bin", range(100))


def cut(path: Path) -> None:
    write_nanogpt(path / "train.bin", [7] * 60)


def gone(path: Path) -> None:
    (path / "train.bin").unlink()


@pytest.mark.parametrize("change", [replaced, cut, gone])
def test_files_that_were_changed_since_are_noticed(tmp_path: Path, change: Callable[[Path], None]):
    write_nanogpt(tmp_path / "train.bin", [7] * 100)
    write_nanogpt(tmp_path / "val.bin", [8] * 10)
    cache = adopted(tmp_path)
    cache.verify()
    change(tmp_path)
    with pytest.raises(DataError, match="the train split holds other tokens than when it was adopted"):
        cache.verify()


def test_a_place_without_a_cache_says_what_was_looked_for_and_what_lies_there(tmp_path: Path):
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text("a text")
    with pytest.raises(ConfigurationError) as raised:
        adopted(tmp_path)
    message = str(raised.value)
    assert "holds no token cache that is known. Looked for manifest.json (Marin), X.idx beside X.bin" in message
    assert "There lies 0.txt, 1.txt, 2.txt, 3.txt, 4.txt, 5.txt, 6.txt, 7.txt and 2 more" in message
    assert all(layout.looks_for in message for layout in LAYOUTS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="There lies nothing"):
        adopted(tmp_path / "empty")
    with pytest.raises(ConfigurationError, match="does not exist: give the folder"):
        open_stream(str(tmp_path / "absent"))


def test_a_place_with_two_layouts_asks_which(tmp_path: Path):
    write_nanogpt(tmp_path / "a.bin", [1, 2, 3])
    write_llmc(tmp_path / "b.bin", [4, 5])
    with pytest.raises(
        ConfigurationError,
        match=r"several layouts \(llmc: b\.bin begins .*; nanogpt: a\.bin has no .*config=\{'layout': 'llmc'\}",
    ):
        adopted(tmp_path)
    assert adopted(tmp_path, layout="llmc").num_train_tokens == 2
    assert adopted(tmp_path, layout="nanogpt").num_train_tokens == 3
    assert adopted(tmp_path / "a.bin").num_train_tokens == 3
    with pytest.raises(
        ConfigurationError, match=r"Looked for X\.ds \(datatrove, nanotron\)\. There lies a\.bin, b\.bin"
    ):
        adopted(tmp_path, layout="datatrove")
    with pytest.raises(ConfigurationError, match=r"layout='fairseq' of .* is not known: give one of marin, megatron"):
        adopted(tmp_path, layout="fairseq")


def test_our_own_cache_is_known_by_its_manifest_and_never_taken_for_arrow(tmp_path: Path):
    tokenize(config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl")))
    assert TokenizedCache.from_source(str(tmp_path / "out"), {}).layout == "marin"
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"part of a token cache of Marin whose manifest\.json is missing"):
        adopted(tmp_path / "out")


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["train.bin", "val.bin"], {"train": 1, "validation": 1}),
        (["a_train_000001.bin", "a_train_000002.bin", "a_val_000000.bin"], {"train": 2, "validation": 1}),
        (["train/a.bin", "validation/a.bin", "test/a.bin"], {"train": 1, "validation": 1, "test": 1}),
        (["train_data/val.bin", "train_data/x.bin"], {"train": 1, "validation": 1}),
        (["x.bin", "VALID.bin"], {"train": 1, "validation": 1}),
        (["val.bin"], {"train": 1}),
        (["dev-0.bin", "dev-1.bin"], {"train": 2}),
        (["contrain.bin", "evaluate.bin"], {"train": 2}),
    ],
)
def test_names_decide_the_split(tmp_path: Path, names: list[str], splits: dict[str, int]):
    for name in names:
        write_nanogpt(tmp_path / name, [1, 2, 3])
    assert {split: found.tokens // 3 for split, found in adopted(tmp_path).splits.items()} == splits


def test_names_that_say_two_splits_or_none_for_training_are_refused(tmp_path: Path):
    write_nanogpt(tmp_path / "a" / "train-val.bin", [1])
    with pytest.raises(ConfigurationError, match=r"train-val\.bin may be train or validation by its name: rename it"):
        adopted(tmp_path)
    write_nanogpt(tmp_path / "b" / "val.bin", [1])
    write_nanogpt(tmp_path / "b" / "test.bin", [1])
    with pytest.raises(ConfigurationError, match="has no training split: its names say test, validation"):
        adopted(tmp_path / "b")
    with pytest.raises(ConfigurationError, match="has no split 'validation'; it has: train"):
        open_stream(str(tmp_path / "b" / "val.bin"), "validation")


def test_one_file_of_several_is_that_file(tmp_path: Path):
    path = copy_of("megatron", tmp_path / "cache")
    for name in ("valid_text_document.bin", "valid_text_document.idx"):
        assert adopted(path / name).splits["train"].tokens == TOKENS["validation"]
    assert adopted(GOLDEN / "datatrove-masked" / "train.ds").splits["train"].tokens == TOKENS["train"]
    assert list(adopted(GOLDEN / "parquet" / "train-00000-of-00001.parquet").splits) == ["train"]
    assert adopted(GOLDEN / "arrow" / "train").num_train_tokens == TOKENS["train"]
    assert adopted(GOLDEN / "arrow" / "train" / "data-00000-of-00002.arrow").splits["train"].documents == 3


def test_the_record_says_what_was_adopted():
    cache = adopted(GOLDEN / "megatron")
    again = json.loads(json.dumps(dataclasses.asdict(cache)))
    assert (again["layout"], again["sources"]) == ("megatron", [str(GOLDEN / "megatron")])
    assert set(again["spot_sha256"]) == {"train", "validation"}


def test_no_tokens_at_all_is_no_cache(tmp_path: Path):
    write_nanogpt(tmp_path / "train.bin", [])
    with pytest.raises(DataError, match="the train split has no tokens"):
        adopted(tmp_path)


def test_one_token_is_a_cache(tmp_path: Path):
    write_megatron(tmp_path / "a", [[7]], [0, 1])
    cache = adopted(tmp_path)
    assert (cache.num_train_tokens, cache.splits["train"].documents) == (1, 1)
    assert open_split(cache, "train").windows(np.array([0]), 1).tolist() == [[7]]
