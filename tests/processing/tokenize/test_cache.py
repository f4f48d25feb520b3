"""The files of a token cache: written once, read without a copy, and never trusted unchecked."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import (
    ArtifactTypeError,
    ConfigurationError,
    DataError,
    RunError,
    TokenizerMismatchError,
)
from marin.execution import ArtifactStep, RunOptions, run
from marin.execution.artifact import at_path
from marin.execution.results import decode_result, encode_result
from marin.experiment.data import tokenized
from marin.processing.tokenize.cache import Chunk, ShardWriter, TokenCache, check_cache, token_type
from marin.processing.tokenize.encoder import ByteEncoder
from marin.processing.tokenize.manifest import Manifest, PartRecord, ShardRecord, read_manifest, write_manifest
from marin.processing.tokenize.tokenize import TokenizedCache

Batches = list[list[list[int]]]
"""Documents by record batch."""


def write_shard(
    root: Path, batches: Batches, *, file: str = "train/part-00000.arrow", vocab_size: int = 257
) -> ShardRecord:
    writer = ShardWriter(
        str(root), file, split=file.split("/")[0], vocab_size=vocab_size, metadata={"marin.format": "1"}
    )
    for documents in batches:
        ids = np.array([token for document in documents for token in document], np.uint32)
        lengths = np.array([len(document) for document in documents], np.int64)
        writer.write(ids, lengths, text_bytes=int(lengths.sum()))
    return writer.close()


def write_cache(root: Path, *shards: Batches, vocab_size: int = 257) -> Manifest:
    written = [
        write_shard(root, batches, file=f"train/part-{number:05d}.arrow", vocab_size=vocab_size)
        for number, batches in enumerate(shards)
    ]
    parts = [PartRecord(part=n, recipe="", inputs=(), shards=(shard,)) for n, shard in enumerate(written)]
    identity = dataclasses.replace(ByteEncoder().identity, vocab_size=vocab_size)
    manifest = Manifest(
        format=1, dtype=token_type(vocab_size), tokenizer=identity, engine="marin bytes 1", parts=tuple(parts)
    )
    write_manifest(str(root), manifest)
    return manifest


SHARDS: tuple[Batches, ...] = ([[[1, 2, 256], [256]], [[3, 4, 5, 256]]], [[[6, 256]]])
STREAM = [1, 2, 256, 256, 3, 4, 5, 256, 6, 256]


def test_the_flat_stream_joins_documents_batches_and_shards(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    cache = TokenCache.open(str(tmp_path))
    assert (cache.num_tokens, len(cache), cache.num_documents) == (10, 10, 4)
    assert cache.tokens(0, 10).tolist() == STREAM
    assert cache.doc_ends.tolist() == [3, 4, 8, 10]
    assert [cache.document(index).tolist() for index in range(4)] == [[1, 2, 256], [256], [3, 4, 5, 256], [6, 256]]


def test_every_span_is_the_slice_of_the_stream(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    cache = TokenCache.open(str(tmp_path))
    for start in range(11):
        for count in range(11 - start):
            assert cache.tokens(start, count).tolist() == STREAM[start : start + count], (start, count)
    starts = np.array([7, 0, 3])
    assert cache.windows(starts, 3).tolist() == [STREAM[7:10], STREAM[0:3], STREAM[3:6]]


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (9, 2), (0, 11), (0, -1), (11, 0)])
def test_a_span_outside_the_stream_is_refused(tmp_path: Path, start: int, count: int):
    write_cache(tmp_path, *SHARDS)
    with pytest.raises(IndexError, match="of a split of 10"):
        TokenCache.open(str(tmp_path)).tokens(start, count)


def test_a_span_within_a_batch_is_a_read_only_view_of_the_mapped_file(tmp_path: Path):
    write_cache(tmp_path, [[list(range(200)), [256]]])
    cache = TokenCache.open(str(tmp_path))
    first, second = cache.tokens(0, 100), cache.tokens(50, 100)
    assert np.shares_memory(first, second)
    assert not first.flags.writeable


def test_one_token_is_a_cache(tmp_path: Path):
    write_cache(tmp_path, [[[256]]])
    assert TokenCache.open(str(tmp_path)).tokens(0, 1).tolist() == [256]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.lists(st.integers(0, 256), min_size=1), min_size=1), min_size=1))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, batches: Batches):
    root = tmp_path_factory.mktemp("cache")
    write_cache(root, batches)
    documents = [document for batch in batches for document in batch]
    cache = TokenCache.open(str(root))
    assert [cache.document(index).tolist() for index in range(cache.num_documents)] == documents


def test_the_same_documents_give_the_same_bytes_and_the_digests_do_not_depend_on_batches(tmp_path: Path):
    first, again = write_shard(tmp_path / "a", SHARDS[0]), write_shard(tmp_path / "b", SHARDS[0])
    assert first == again
    assert (tmp_path / "a" / first.file).read_bytes() == (tmp_path / "b" / first.file).read_bytes()
    whole = write_shard(tmp_path / "c", [[document for batch in SHARDS[0] for document in batch]])
    assert (whole.tokens_sha256, whole.lengths_sha256) == (first.tokens_sha256, first.lengths_sha256)
    assert write_shard(tmp_path / "d", [[[1, 2], [256, 256]], SHARDS[0][1]]).lengths_sha256 != first.lengths_sha256


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "uint16"), (65_537, "uint32"), (257, "uint16")])
def test_ids_are_as_wide_as_the_vocabulary_needs(tmp_path: Path, vocab_size: int, dtype: str):
    write_cache(tmp_path, [[[0, vocab_size - 1]]], vocab_size=vocab_size)
    cache = TokenCache.open(str(tmp_path))
    assert cache.dtype == np.dtype(dtype)
    assert cache.tokens(0, 2).tolist() == [0, vocab_size - 1]


def test_an_id_outside_the_vocabulary_is_refused_when_written(tmp_path: Path):
    with pytest.raises(DataError, match="token id 257 is not below the vocabulary size 257"):
        write_shard(tmp_path, [[[257]]])
    assert not (tmp_path / "train/part-00000.arrow").exists()


def test_lengths_that_do_not_add_up_are_refused(tmp_path: Path):
    writer = ShardWriter(str(tmp_path), "train/a.arrow", split="train", vocab_size=257, metadata={})
    with pytest.raises(DataError, match="lengths add up to 3, but there are 2 tokens"):
        writer.write(np.zeros(2, np.uint32), np.array([3]), text_bytes=2)


def test_token_ranges_are_the_tokens_in_the_file(tmp_path: Path):
    shard = write_shard(tmp_path, SHARDS[0])
    data = (tmp_path / shard.file).read_bytes()
    stream = [np.frombuffer(data, "<u2", count, offset).tolist() for offset, count in shard.token_ranges]
    assert stream == [[1, 2, 256, 256], [3, 4, 5, 256]]


def test_the_file_is_plain_arrow_that_other_tools_read(tmp_path: Path):
    shard = write_shard(tmp_path, SHARDS[0])
    table = pa.ipc.open_file(str(tmp_path / shard.file)).read_all()
    assert table.schema.field("input_ids").type == pa.large_list(pa.field("item", pa.uint16(), nullable=False))
    assert table.schema.metadata == {b"marin.format": b"1"}
    assert table.column("input_ids").to_pylist() == [[1, 2, 256], [256], [3, 4, 5, 256]]


def flip_a_token(path: Path) -> None:
    data = bytearray(path.read_bytes())
    offset = read_manifest(str(path.parent.parent)).parts[0].shards[0].token_ranges[0][0]
    data[offset] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "one bit": (flip_a_token, "is damaged: its content is not what its manifest says"),
    "truncated": (truncate, "can't be read"),
    "gone": (Path.unlink, "is missing from the token cache"),
    "another shard": (
        lambda path: path.write_bytes((path.parent / "part-00001.arrow").read_bytes()),
        "holds 1 documents",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_cache_is_found_by_the_full_check(tmp_path: Path, kind: str):
    write_cache(tmp_path, *SHARDS)
    check_cache(str(tmp_path))
    damage, message = DAMAGE[kind]
    damage(tmp_path / "train/part-00000.arrow")
    with pytest.raises(DataError, match=message):
        check_cache(str(tmp_path))


def test_an_unknown_split_lists_those_there_are(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    with pytest.raises(ConfigurationError, match=r"has no split 'validation'; it has: train"):
        TokenCache.open(str(tmp_path), "validation")


def test_a_folder_without_manifest_is_no_cache(tmp_path: Path):
    write_shard(tmp_path, SHARDS[0])
    with pytest.raises(ConfigurationError, match=r"holds no token cache: there is no manifest\.json"):
        TokenCache.open(str(tmp_path))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"format": 2}', r"has format 2; this Marin reads up to 1: upgrade"),
        (b'{"format": 1}', "is not the manifest of a token cache"),
        (b"not json", "is not the manifest of a token cache"),
    ],
)
def test_a_manifest_that_is_newer_or_foreign_is_refused(tmp_path: Path, data: bytes, message: str):
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_manifest(str(tmp_path))


def artifact(root: Path) -> TokenizedCache:
    manifest = read_manifest(str(root))
    assert manifest.tokenizer is not None
    return at_path(TokenizedCache.from_manifest(manifest, manifest.tokenizer, sources=()), str(root))


def test_the_artifact_survives_its_record(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    cache = artifact(tmp_path)
    assert (cache.num_train_tokens, cache.splits["train"].documents, cache.has_validation) == (10, 4, False)
    assert decode_result(TokenizedCache, json.loads(json.dumps(encode_result(cache))), what="record") == cache


def test_the_light_check_finds_missing_short_and_miscounted_files(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    artifact(tmp_path).verify()
    other = dataclasses.replace(artifact(tmp_path), splits={})
    with pytest.raises(DataError, match="the manifest counts"):
        at_path(other, str(tmp_path)).verify()
    truncate(tmp_path / "train/part-00001.arrow")
    with pytest.raises(DataError, match=r"part-00001\.arrow has .* bytes, its manifest says"):
        artifact(tmp_path).verify()
    (tmp_path / "train/part-00001.arrow").unlink()
    with pytest.raises(DataError, match=r"part-00001\.arrow is missing"):
        artifact(tmp_path).verify()


def test_a_cache_made_elsewhere_is_adopted_with_its_own_tokenizer(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    adopted = TokenizedCache.from_source(str(tmp_path), {})
    assert (adopted.num_train_tokens, adopted.vocab_size, adopted.path) == (10, 257, str(tmp_path))


def test_a_cache_without_tokenizer_needs_one_from_the_config(tmp_path: Path):
    manifest = write_cache(tmp_path, *SHARDS)
    write_manifest(str(tmp_path), dataclasses.replace(manifest, tokenizer=None))
    with pytest.raises(ConfigurationError, match=r"does not say which tokenizer made it: .*config=\{'tokenizer'"):
        TokenizedCache.from_source(str(tmp_path), {})
    stated = dataclasses.asdict(ByteEncoder().identity)
    assert TokenizedCache.from_source(str(tmp_path), {"tokenizer": stated}).tokenizer == ByteEncoder().identity


def test_a_stated_tokenizer_that_is_not_the_caches_own_is_refused(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    stated = dataclasses.asdict(ByteEncoder().identity) | {"vocab_size": 300, "location": "other"}
    with pytest.raises(
        TokenizerMismatchError, match=r"was made by bytes \(vocabulary 257\).* other \(vocabulary 300\)"
    ):
        TokenizedCache.from_source(str(tmp_path), {"tokenizer": stated})
    with pytest.raises(ArtifactTypeError, match=r"config\['tokenizer'\] is not a TokenizerIdentity"):
        TokenizedCache.from_source(str(tmp_path), {"tokenizer": 7})
    with pytest.raises(ConfigurationError, match="config has no vocab; it may hold 'tokenizer'"):
        TokenizedCache.from_source(str(tmp_path), {"vocab": 3})


def test_the_name_of_the_tokenizer_is_checked(tmp_path: Path):
    write_cache(tmp_path, *SHARDS)
    assert TokenizedCache.from_source(str(tmp_path), {"tokenizer": "bytes"}).vocab_size == 257
    with pytest.raises(TokenizerMismatchError, match=r"was made by bytes .* says org/other"):
        TokenizedCache.from_source(str(tmp_path), {"tokenizer": "org/other"})


def test_a_folder_that_is_no_cache_is_not_adopted(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="holds no token cache"):
        TokenizedCache.from_source(str(tmp_path), {})


class Zeros:
    """An array that takes no memory."""

    def __init__(self, length: int, dtype: str) -> None:
        self._length, self.dtype = length, np.dtype(dtype)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, wanted: slice) -> Any:
        return np.zeros(len(range(*wanted.indices(self._length))), self.dtype)


def test_more_than_two_to_the_31_tokens_are_counted_and_found(tmp_path: Path):
    write_cache(tmp_path)
    length = 3 << 30
    ends = np.array([0, 5, length - 3, length], np.int64)
    chunks = [Chunk(cast("Any", Zeros(length, "uint16")), ends, cast("Any", Zeros(length, "uint8"))) for _ in range(3)]
    cache = TokenCache(str(tmp_path), "train", read_manifest(str(tmp_path)), chunks)
    assert (cache.num_tokens, cache.num_documents) == (3 * length, 9)
    assert len(cache.tokens(2 * length - 4, 10)) == 10
    assert cache.document_ends(2 * length - 4, 10).tolist() == [2 * length - 3, 2 * length, 2 * length + 5]
    assert cache.windows(np.array([3 * length - 7, length + 1]), 7).shape == (2, 7)
    assert cache.loss_mask(2 * length - 4, 10).tolist() == [False] * 10
    assert cache.doc_ends[-1] == 3 * length
    with pytest.raises(IndexError):
        cache.tokens(3 * length - 2, 3)


def test_of_a_copied_cache_with_its_record_the_cache_decides_what_config_may_say(tmp_path: Path):
    (tmp_path / "poems.jsonl").write_text('{"text": "Roses are red."}\n')
    options = RunOptions(prefix=str(tmp_path / "store"))
    source = str(tmp_path / "poems.jsonl")
    [made] = run(tokenized("tokenized/made", source=source, tokenizer="bytes", version="2026.07.01"), options=options)
    shutil.copytree(made.path, tmp_path / "copy")

    def adopted(version: str, **config: Any) -> TokenizedCache:
        step = ArtifactStep.adopt(
            name="tokenized/copy", version=version, source=str(tmp_path / "copy"), kind=TokenizedCache, config=config
        )
        return run(step, options=options)[0]

    assert adopted("2026.07.01") == made
    cache = adopted("2026.07.02", tokenizer="bytes", eos_token="", layout="marin")
    assert (cache.tokenizer, cache.content_sha256, cache.splits) == (made.tokenizer, made.content_sha256, made.splits)
    with pytest.raises(RunError, match=r"was made by bytes .*, config\['tokenizer'\] says org/other"):
        adopted("2026.07.03", tokenizer="org/other")
    with pytest.raises(RunError, match=r"was made with eos_token='', config\['eos_token'\] says '</s>': leave the"):
        adopted("2026.07.03", eos_token="</s>")
    with pytest.raises(RunError, match=r"config has no vocab_size; it may hold 'tokenizer', 'eos_token', 'layout'"):
        adopted("2026.07.03", vocab_size=300)


def test_a_cache_of_ours_is_looked_through_when_it_is_adopted(tmp_path: Path):
    manifest = write_cache(tmp_path / "made", *SHARDS)
    options = RunOptions(prefix=str(tmp_path / "store"))

    def adopted(version: str) -> ArtifactStep[TokenizedCache]:
        return ArtifactStep.adopt(
            name="tokenized/made", version=version, source=str(tmp_path / "made"), kind=TokenizedCache
        )

    [cache] = run(adopted("2026.07.01"), options=options)
    assert cache.tokens()[:].tolist() == STREAM
    flip_a_token(tmp_path / "made/train/part-00000.arrow")
    with pytest.raises(RunError, match=r"part-00000\.arrow is damaged: its content is not what its manifest says"):
        run(adopted("2026.07.03"), options=options)
    flip_a_token(tmp_path / "made/train/part-00000.arrow")
    smaller = dataclasses.replace(ByteEncoder().identity, vocab_size=256)
    write_manifest(str(tmp_path / "made"), dataclasses.replace(manifest, tokenizer=smaller))
    with pytest.raises(RunError, match=r"token id 256 is not below the vocabulary size 256"):
        run(adopted("2026.07.02"), options=options)
