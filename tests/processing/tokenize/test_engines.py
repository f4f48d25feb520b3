"""The fast engine and the cuts in long texts give the ids of the reference, or are not used."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import DataError
from marin.processing.sources import files
from marin.processing.tokenize import build, cutting, engines, gate, work
from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.cache import TokenCache
from marin.processing.tokenize.crew import Crew, EngineChoice, Progress
from marin.processing.tokenize.engines import Engine, EngineRefusal, FastEngine, FlatIds, ReferenceEngine
from marin.processing.tokenize.manifest import read_manifest
from marin.processing.tokenize.parts import Part
from tests.executors.processes import eventually
from tests.processing.tokenize.small import BYTES, config, stdlib_files, tree, vocabulary, vocabulary_file, write_poems

EXACT_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LLAMA_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
SPLIT_BY_PATTERN = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": LLAMA_PATTERN}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    ],
}


def changed(**entries: Any) -> bytes:
    return json.dumps(json.loads(vocabulary()) | entries).encode()


VOCABULARIES = {
    "gpt2 pattern": changed(),
    "llama 3 pattern": changed(pre_tokenizer=SPLIT_BY_PATTERN),
    "composed": changed(normalizer={"type": "NFC"}),
}


def reference(data: bytes, **options: Any) -> ReferenceEngine:
    return ReferenceEngine(data, label="test", **options)


def same(one: FlatIds, other: FlatIds) -> bool:
    return np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])


@pytest.mark.parametrize("data", VOCABULARIES.values(), ids=VOCABULARIES)
@pytest.mark.parametrize("parse_special", [False, True])
def test_the_fast_engine_gives_the_ids_of_the_reference(data: bytes, parse_special: bool):
    texts = gate.probe_set([path.read_text() for path in stdlib_files(20)], ["<|endoftext|>", "<s>"])
    one, other = reference(data, parse_special=parse_special), FastEngine(data, parse_special=parse_special)
    assert same(one.encode(texts), other.encode(texts))


@given(st.lists(EXACT_TEXT))
@settings(deadline=None)
def test_the_fast_engine_is_exact_on_any_text(texts: list[str]):
    data = VOCABULARIES["llama 3 pattern"]
    assert same(reference(data).encode(texts), FastEngine(data).encode(texts))


@pytest.mark.parametrize("data", VOCABULARIES.values(), ids=VOCABULARIES)
@given(text=st.text(st.sampled_from(" \n\tab'sZé1_<|endoftext|>東e\u0301"), max_size=300))
@settings(deadline=None)
def test_a_text_in_pieces_has_the_ids_of_the_whole(data: bytes, text: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "CUT_CHARACTERS", 7)
        patch.setattr(cutting, "CUT_CHARACTERS", 7)
        pieces = reference(data).encode([text, "x", text])
    assert same(pieces, reference(data).encode([text, "x", text]))


@pytest.mark.parametrize("searched", [1, 2, 5, 1 << 12])
def test_cuts_are_made_wherever_they_may_be(searched: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cutting, "CUT_CHARACTERS", 10)
    monkeypatch.setattr(cutting, "_SEARCHED", searched)
    text = "one two three four five 1 2 3 4 5 6 7 8 9 six seven eight nine ten"
    pieces = list(cutting.cut(text))
    assert "".join(pieces) == text
    assert pieces == ["one two three", " four five 1 2 3 4 5 6 7 8 9 six", " seven eight", " nine ten"]


@pytest.mark.parametrize(
    "entries",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"added_tokens": [{"id": 5, "content": "of course", "special": False}]},
        {"added_tokens": [{"id": 5, "content": "course", "special": False, "lstrip": True}]},
        {"added_tokens": [{"id": 5, "content": "course", "special": False, "rstrip": True}]},
        {"model": {"type": "Unigram"}},
    ],
)
def test_what_might_look_across_a_cut_is_not_cut(entries: dict[str, Any]):
    assert cutting.may_be_cut(changed())
    assert not cutting.may_be_cut(changed(**entries))


def test_a_tokenizer_without_pre_tokenizer_is_refused_by_the_fast_engine():
    with pytest.raises(EngineRefusal, match="without a pre-tokenizer"):
        FastEngine(changed(pre_tokenizer=None))


class WrongOnce:
    """Is wrong about one character."""

    name = "wrong 1"

    def __init__(self, engine: Engine, character: str) -> None:
        self._engine, self._character = engine, character

    def encode(self, texts: list[str]) -> FlatIds:
        return self._engine.encode([text.replace(self._character, "?") for text in texts])


@pytest.mark.parametrize("character", [*"a1é東\u3000\u2028\u0301\x00", "👩"])
def test_the_gate_notices_an_engine_that_is_wrong_about_one_character(character: str):
    exact = reference(VOCABULARIES["gpt2 pattern"])
    texts = gate.probe_set([], [])
    fault = gate.difference(exact.encode(texts), WrongOnce(exact, character).encode(texts), texts)
    assert fault is not None
    assert fault.startswith("the fast one gives other ids for ")


def test_the_gate_notices_what_only_the_data_shows():
    exact = reference(VOCABULARIES["gpt2 pattern"])
    sample = gate.first_characters(["x" * 10, "ꓐ is rare" * 60_000, "never looked at"])
    assert [len(text) for text in sample] == [10, gate.SAMPLED_CHARACTERS - 10]
    texts = gate.probe_set(sample, [])
    fault = gate.difference(exact.encode(texts), WrongOnce(exact, "ꓐ").encode(texts), texts)
    assert fault == f"the fast one gives other ids for {sample[1][:40]!a} … ({len(sample[1]):,} characters)"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("changes", "engine", "told"),
    [
        ({}, "fastokens", ""),
        (
            {"pre_tokenizer": None},
            "tokenizers",
            "is slower: fastokens gives other ids for a tokenizer without a pre",
        ),
        ({"normalizer": {"type": "NFKC"}}, "tokenizers", "is slower: fastokens can't run it"),
    ],
)
def test_the_fast_engine_is_used_where_it_is_exact_and_else_a_line_says_why(
    tmp_path: Path,
    workers: int,
    changes: dict[str, Any],
    engine: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(build, "_FAST_BYTES", 0)
    monkeypatch.setattr(build, "CREW_BYTES", 0)
    texts = [path.read_text() for path in stdlib_files(8)]
    source = write_poems(tmp_path / "poems.jsonl", texts)
    tokenizer = vocabulary_file(tmp_path, **changes)
    asked = config(tmp_path / "out", source, tokenizer=tokenizer, workers=workers, part_bytes=20_000)
    tokenize(asked)
    assert read_manifest(asked.output_path).engine.startswith(engine)
    assert told in capfd.readouterr().err
    exact = tokenizers.Tokenizer.from_file(tokenizer.location)
    exact.encode_special_tokens = True
    expected = [[*exact.encode(text, add_special_tokens=False).ids, 0] for text in texts]
    cache = TokenCache.open(asked.output_path)
    assert [cache.document(number).tolist() for number in range(cache.num_documents)] == expected


def test_an_engine_that_is_wrong_about_the_data_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(build, "_FAST_BYTES", 0)
    exact = FastEngine.encode
    monkeypatch.setattr(
        FastEngine, "encode", lambda self, texts: exact(self, [text.replace("ꓐ", "?") for text in texts])
    )
    source = write_poems(tmp_path / "poems.jsonl", ["ꓐ"])
    asked = config(tmp_path / "out", source, tokenizer=vocabulary_file(tmp_path))
    tokenize(asked)
    assert read_manifest(asked.output_path).engine.startswith("tokenizers")
    assert "is slower: the fast one gives other ids for '\\ua4d0'" in capfd.readouterr().err


def test_small_input_does_not_wait_for_the_fast_engine(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    asked = config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl"), tokenizer=vocabulary_file(tmp_path))
    tokenize(asked)
    assert read_manifest(asked.output_path).engine.startswith("tokenizers")
    assert "MB of input another one would not have been loaded" in capfd.readouterr().err


@pytest.mark.parametrize("tokenizer", ["bytes", "file"])
def test_any_number_of_workers_makes_the_same_files(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "_FAST_BYTES", 0)
    monkeypatch.setattr(build, "CREW_BYTES", 0)
    source = write_poems(tmp_path / "poems.jsonl", [path.read_text() for path in stdlib_files(20)])
    for name in ("a", "b"):
        write_poems(tmp_path / f"{name}.jsonl", [name])
    spec = BYTES if tokenizer == "bytes" else vocabulary_file(tmp_path)
    made = {
        workers: tokenize(
            config(
                tmp_path / f"out{workers}",
                files(source, tmp_path / "a.jsonl", tmp_path / "b.jsonl"),
                tokenizer=spec,
                workers=workers,
                held_out=0.2,
                part_bytes=30_000,
            )
        )
        for workers in (1, 2, 3)
    }
    assert made[1] == made[2] == made[3]
    assert tree(tmp_path / "out1") == tree(tmp_path / "out2") == tree(tmp_path / "out3")
    assert len(read_manifest(str(tmp_path / "out1")).parts) > 3


def test_a_worker_that_was_killed_is_told_with_the_remedy(tmp_path: Path):
    choice = EngineChoice(tokenizer_file=None, is_fast=False, parse_special=False)
    part = Part(number=0, split="train", pieces=(), size=0)
    with Crew(choice, 2) as crew:
        concurrent.futures.wait([crew._pool.submit(os._exit, 9)])
        with pytest.raises(DataError, match=r"one of 2 worker processes was ended from outside, .* fewer workers="):
            crew.make(cast("Any", None), [part], Progress(1))


ORPHANS = """
import os, sys
from marin.processing.tokenize.crew import Crew, EngineChoice
if __name__ == "__main__":
    crew = Crew(EngineChoice(tokenizer_file=None, is_fast=False, parse_special=False), 2)
    print(*{crew._pool.submit(os.getpid).result() for _ in range(20)}, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path):
    (tmp_path / "script.py").write_text(ORPHANS)
    ended = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, check=False)
    assert ended.returncode == -9
    left = set(map(int, ended.stdout.split()))
    assert left
    eventually(lambda: not any(Path(f"/proc/{worker}").exists() for worker in left))


@pytest.mark.parametrize("tokenizer", ["bytes", "file"])
def test_a_long_document_written_as_it_is_encoded_has_the_same_tokens(
    tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch
):
    source = write_poems(
        tmp_path / "poems.jsonl", ["x", "", *(path.read_text() for path in stdlib_files(6)), "東京 " * 9]
    )
    spec = BYTES if tokenizer == "bytes" else vocabulary_file(tmp_path)
    plain = tokenize(config(tmp_path / "plain", source, tokenizer=spec))
    monkeypatch.setattr(engines, "CUT_CHARACTERS", 50)
    monkeypatch.setattr(cutting, "CUT_CHARACTERS", 50)
    monkeypatch.setattr(work, "LARGE_BYTES", 20)
    long = tokenize(config(tmp_path / "long", source, tokenizer=spec))
    assert long == plain
    assert sorted(tree(tmp_path / "long")) == sorted(tree(tmp_path / "plain"))
    shards = [read_manifest(str(tmp_path / name)).parts[0].shards[0] for name in ("plain", "long")]
    assert (len(shards[0].token_ranges), len(shards[1].token_ranges)) == (1, 8)


def test_a_sample_is_the_first_documents_and_does_not_touch_the_validation(tmp_path: Path):
    for name, count in (("a", 3), ("b", 5), ("held", 4)):
        write_poems(tmp_path / f"{name}.jsonl", [f"{name}{number}" for number in range(count)])
    asked = config(
        tmp_path / "out",
        files(tmp_path / "a.jsonl", tmp_path / "b.jsonl"),
        validation=files(tmp_path / "held.jsonl"),
        sample_count=5,
        part_bytes=60,
    )
    made = tokenize(asked)
    cache = TokenCache.open(asked.output_path)
    texts = [bytes(cache.document(number)[:-1].tolist()).decode() for number in range(cache.num_documents)]
    assert texts == ["a0", "a1", "a2", "b0", "b1"]
    assert made.splits["validation"].documents == 4
    assert tokenize(asked) == made


ROOT = Path(__file__).parents[3]

CREW = """
import pathlib, pickle, sys
from marin.execution.progress import progress_sink
from marin.processing.tokenize import build
from tests.processing.killed import killing
if __name__ == "__main__":
    build._FAST_BYTES = build.CREW_BYTES = 0
    asked = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
    with progress_sink(killing(asked.output_path, "parts/part-*.json", 3)):
        build.tokenize(asked)
"""


def test_a_step_that_was_killed_with_its_workers_at_work_is_finished_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(build, "_FAST_BYTES", 0)
    monkeypatch.setattr(build, "CREW_BYTES", 0)
    texts = [path.read_text() for path in stdlib_files(40)]
    source = write_poems(tmp_path / "poems.jsonl", texts * 4)
    asked = config(
        tmp_path / "out", source, tokenizer=vocabulary_file(tmp_path), workers=2, part_bytes=60_000, held_out=0.1
    )
    (tmp_path / "crew.py").write_text(CREW)
    (tmp_path / "config.pickle").write_bytes(pickle.dumps(asked))
    command = [sys.executable, str(tmp_path / "crew.py"), str(tmp_path / "config.pickle")]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "out/manifest.json").exists()
    made = tokenize(asked)
    fresh = tokenize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh"), workers=1))
    assert made == fresh
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
