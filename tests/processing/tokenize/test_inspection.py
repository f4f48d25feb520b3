"""What people and scripts see of a token cache: arrays, documents, lengths, and what marin show prints."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from marin.cli.main import main
from marin.errors import ConfigurationError, DataError, TokenizerMismatchError
from marin.execution import RunOptions, run
from marin.execution.artifact import at_path
from marin.experiment.data import ChatFormat, tokenized
from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.cache import TokenCache
from marin.processing.tokenize.manifest import read_manifest
from marin.processing.tokenize.tokenize import TokenizedCache
from tests.processing.tokenize.small import BYTES, POEMS, config, vocabulary_file, write_poems
from tests.processing.tokenize.test_chat import CHAT, TEMPLATE


def cache_of(folder: Path, poems: list[str] = POEMS, **changes: Any) -> TokenizedCache:
    asked = config(folder / "out", write_poems(folder / "poems.jsonl", poems), **changes)
    return at_path(tokenize(asked), asked.output_path)


def test_tokens_are_an_array_that_is_not_read_as_a_whole(tmp_path: Path):
    tokens = cache_of(tmp_path, batch_bytes=40, part_bytes=100).tokens()
    everything = np.asarray(tokens)
    assert (len(tokens), tokens.shape, tokens.ndim, tokens.dtype) == (len(everything), everything.shape, 1, np.uint16)
    for wanted in (slice(None), slice(3, 9), slice(-5, None), slice(40, 10), slice(2, 90, 7), slice(None, None, -1)):
        assert tokens[wanted].tolist() == everything[wanted].tolist()
    assert (tokens[0], tokens[-1]) == (everything[0], everything[-1])
    for outside in (len(tokens), -len(tokens) - 1):
        with pytest.raises(IndexError, match="token"):
            tokens[outside]
        with pytest.raises(IndexError, match="token"):
            tokens[[0, outside]]
    for several in ([3, -1, 3], np.array([5, 0]), []):
        found = tokens[several]
        assert (found.tolist(), found.dtype) == (everything[np.array(several, int)].tolist(), tokens.dtype)
    assert tokens[np.int64(-2)] == everything[-2]
    assert np.asarray(tokens, np.int64).dtype == np.int64


def test_a_sample_is_documents_as_text_in_their_order_the_same_each_time(tmp_path: Path):
    cache = cache_of(tmp_path, batch_bytes=40, part_bytes=100)
    assert [document.text for document in cache.sample(99)] == POEMS
    assert [document.number for document in cache.sample(3)] == [document.number for document in cache.sample(3)]
    assert len({tuple(document.number for document in cache.sample(3, seed=seed)) for seed in range(9)}) > 1
    assert cache.sample(0) == []
    assert cache.sample(1)[0].learned == 1.0
    with pytest.raises(ConfigurationError, match=r"sample\(-1\): give how many documents"):
        cache.sample(-1)
    for not_a_count in (1.0, True, "1", None):
        with pytest.raises(ConfigurationError, match=r"sample\(.*\): give how many documents"):
            cache.sample(not_a_count)  # type: ignore[arg-type]


def test_ids_to_decode_may_be_an_array_a_list_or_one_id(tmp_path: Path):
    for tokenizer in (BYTES, vocabulary_file(tmp_path)):
        cache = cache_of(tmp_path / tokenizer.kind, tokenizer=tokenizer)
        [ids] = [document.ids for document in cache.sample(1)]
        assert cache.decode(ids) == cache.decode(ids.tolist()) == cache.decode(tuple(ids.tolist())) != ""
        assert cache.decode([]) == ""
        assert cache.decode(ids.tolist()[0]) == cache.decode(ids[:1])


def test_lengths_are_counted_by_powers_of_two(tmp_path: Path):
    poems = ["x" * length for length in (1, 3, 4, 7, 8, 100)]  # and one token more each
    lengths = cache_of(tmp_path, poems).length_statistics()
    assert (lengths.documents, lengths.tokens, lengths.shortest, lengths.longest) == (6, 129, 2, 101)
    assert (lengths.median, lengths.mean) == (6.5, 129 / 6)
    assert lengths.histogram == (0, 1, 1, 2, 1, 0, 0, 1)


def test_a_tokenizer_that_was_changed_since_is_noticed_before_it_decodes(tmp_path: Path):
    cache = cache_of(tmp_path, tokenizer=vocabulary_file(tmp_path))
    assert cache.decode(cache.sample(1)[0].ids) == cache.sample(1)[0].text
    vocabulary_file(Path(cache.path), normalizer={"type": "Lowercase"})
    with pytest.raises(TokenizerMismatchError, match=r"does not behave as it did then"):
        cache.decode(np.zeros(1, np.uint32))


def test_marin_show_prints_counts_a_histogram_and_documents_with_what_is_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    vocabulary_file(tmp_path)
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": CHAT}) + "\n")
    step = tokenized(
        "tokenized/chats",
        source=str(tmp_path / "chats.jsonl"),
        tokenizer=str(tmp_path / "tokenizer.json"),
        format=ChatFormat(chat_template=TEMPLATE),
        version="2026.07.01",
    )
    [cache] = run(step, options=RunOptions(prefix=str(tmp_path / "store")))
    capsys.readouterr()
    assert main(["show", "tokenized/chats@2026.07.01", "--prefix", str(tmp_path / "store")]) == 0
    shown = capsys.readouterr().out
    count, learned = cache.splits["train"].tokens, cache.splits["train"].learned_tokens
    assert f"{count} tokens, {learned} of them learned in 1 document\n" in shown
    assert f"{count} to {count} tokens, median {count}, mean {count}" in shown
    assert "█" in shown
    assert "assistant\\n⟦They are red — 東京 👩\\u200d🚀.⟧" in shown
    (Path(cache.path) / "manifest.json").unlink()
    assert main(["show", "tokenized/chats@2026.07.01", "--prefix", str(tmp_path / "store")]) == 0
    assert "inside        can't be shown: " in capsys.readouterr().out


@pytest.fixture
def remote(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[TokenizedCache, str]:
    """A cache of several parts and batches, with masks, and a copy of it at a URL."""
    chats = [[{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!" * n}] for n in range(40)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    asked = config(
        tmp_path / "out",
        tmp_path / "chats.jsonl",
        tokenizer=vocabulary_file(tmp_path),
        format=ChatFormat(chat_template=TEMPLATE),
        batch_bytes=300,
        part_bytes=2_000,
    )
    cache = at_path(tokenize(asked), asked.output_path)
    url = f"memory://{request.node.name}"
    fsspec.filesystem("memory").put(asked.output_path, url, recursive=True)
    return cache, url


def test_a_cache_at_a_url_reads_as_the_one_on_the_disk(remote: tuple[TokenizedCache, str]):
    cache, url = remote
    here, there = TokenCache.open(cache.path), TokenCache.open(url)
    assert (there.num_tokens, there.num_documents, there.dtype) == (here.num_tokens, here.num_documents, here.dtype)
    assert len(read_manifest(url).parts) == 2
    pick = random.Random(0)
    for _ in range(50):
        start = pick.randrange(here.num_tokens)
        count = pick.randrange(here.num_tokens - start)
        assert there.tokens(start, count).tolist() == here.tokens(start, count).tolist()
        assert there.document_ends(start, count).tolist() == here.document_ends(start, count).tolist()
        ours, theirs = here.loss_mask(start, count), there.loss_mask(start, count)
        assert ours is not None
        assert theirs is not None
        assert np.array_equal(ours, theirs)
    starts = np.array([0, 5, here.num_tokens - 9])
    assert np.array_equal(there.windows(starts, 9), here.windows(starts, 9))


def test_no_more_than_what_is_asked_for_is_read_from_a_url(
    remote: tuple[TokenizedCache, str], monkeypatch: pytest.MonkeyPatch
):
    _, url = remote
    there = TokenCache.open(url)
    read: list[int] = []
    memory = type(fsspec.filesystem("memory"))
    whole = memory.cat_file

    def counted(self: Any, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        data = whole(self, path, start=start, end=end, **more)
        read.append(len(data))
        return data

    monkeypatch.setattr(memory, "cat_file", counted)
    there.tokens(10, 16)
    assert read == [16 * there.dtype.itemsize]


def test_a_cache_at_a_url_that_is_cut_short_or_older_is_told(remote: tuple[TokenizedCache, str]):
    cache, url = remote
    memory = fsspec.filesystem("memory")
    shard = read_manifest(url).shards("train")[-1]
    memory.pipe(f"{url}/{shard.file}", Path(cache.path, shard.file).read_bytes()[:100])
    there = TokenCache.open(url)
    with pytest.raises(DataError, match=r"part-\d+\.arrow ends .* bytes before what its manifest says"):
        there.tokens(there.num_tokens - 5, 5)
    memory.rm(f"{url}/{shard.file}")
    with pytest.raises(DataError, match=r"part-\d+\.arrow can't be read \(FileNotFoundError"):
        TokenCache.open(url).tokens(there.num_tokens - 5, 5)
    older = json.loads(memory.cat_file(f"{url}/manifest.json"))
    for part in older["parts"]:
        for each in part["shards"]:
            each["offset_ranges"] = []
    memory.pipe(f"{url}/manifest.json", json.dumps(older).encode())
    with pytest.raises(DataError, match="as an older Marin wrote it: copy the cache to a disk"):
        TokenCache.open(url)
    with pytest.raises(ConfigurationError, match=r"memory://nothing holds no token cache: there is no manifest\.json"):
        TokenCache.open("memory://nothing")
