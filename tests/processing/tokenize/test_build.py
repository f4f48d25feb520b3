"""The tokenize step: exact, the same bytes each time, and finished by whoever comes after a kill."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import tokenizers

from marin.errors import BadRecordError, ConfigurationError, DataError, StorageFullError
from marin.execution.artifact import at_path
from marin.execution.progress import Progress, progress_sink
from marin.processing.bad_records import BadRecords
from marin.processing.documents import Document, is_held_out, read_documents
from marin.processing.pieces import Piece
from marin.processing.sources import files
from marin.processing.tokenize import build, examples, work
from marin.processing.tokenize.build import tokenize
from marin.processing.tokenize.cache import TokenCache, check_cache
from marin.processing.tokenize.encoder import load_encoder
from marin.processing.tokenize.manifest import PartRecord, read_manifest
from marin.processing.tokenize.parts import Part
from marin.processing.tokenize.tokenize import TokenizeConfig
from marin.processing.tokenize.work import Job
from tests.processing.tokenize.small import (
    BYTES,
    POEMS,
    config,
    stdlib_files,
    stdlib_source,
    tree,
    vocabulary_file,
    write_poems,
)


def documents(root: Path, split: str = "train") -> list[list[int]]:
    cache = TokenCache.open(str(root), split)
    return [cache.document(index).tolist() for index in range(cache.num_documents)]


def decoded(config: TokenizeConfig, split: str = "train") -> list[str]:
    encoder = load_encoder(config.tokenizer)
    return [encoder.decode(np.array(ids)) for ids in documents(Path(config.output_path), split)]


def test_source_files_of_the_standard_library_come_back_exactly_and_their_ids_are_the_references(tmp_path: Path):
    asked = config(tmp_path / "out", stdlib_source(60), tokenizer=vocabulary_file(tmp_path), part_bytes=100_000)
    made = tokenize(asked)
    sources = [text for path in stdlib_files(60) if (text := path.read_bytes().decode("utf-8-sig"))]
    assert decoded(asked) == sources
    reference = tokenizers.Tokenizer.from_file(asked.tokenizer.location)
    reference.encode_special_tokens = True
    expected = [[*reference.encode(text, add_special_tokens=False).ids, 0] for text in sources]
    assert documents(tmp_path / "out") == expected
    split = made.splits["train"]
    assert split.documents == len(sources)
    assert split.tokens == made.num_train_tokens == sum(map(len, expected))
    assert split.text_bytes == sum(len(text.encode()) for text in sources)
    assert len(read_manifest(asked.output_path).parts) > 3


def test_two_runs_give_the_same_bytes(tmp_path: Path):
    source, tokenizer = stdlib_source(20), vocabulary_file(tmp_path)
    made = [
        tokenize(config(tmp_path / name, source, tokenizer=tokenizer, held_out=0.3, part_bytes=50_000)) for name in "ab"
    ]
    assert made[0] == made[1]
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_part_and_batch_sizes_change_no_token(tmp_path: Path):
    source = stdlib_source(20)
    for name, sizes in {"a": {}, "b": {"part_bytes": 1, "batch_bytes": 1}, "c": {"batch_bytes": 5_000}}.items():
        tokenize(config(tmp_path / name, source, **sizes))
    assert documents(tmp_path / "a") == documents(tmp_path / "b") == documents(tmp_path / "c")
    assert len(read_manifest(str(tmp_path / "b")).parts) > 10


def test_the_finished_cache_passes_its_own_check_and_holds_nothing_else(tmp_path: Path):
    tokenizer = vocabulary_file(tmp_path)
    made = tokenize(config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl"), tokenizer=tokenizer))
    at_path(made, str(tmp_path / "out")).verify()
    assert sorted(tree(tmp_path / "out")) == ["manifest.json", "tokenizer.json", "train/part-00000.arrow"]
    assert made.tokenizer == load_encoder(tokenizer).identity


def test_empty_documents_are_counted_and_left_out(tmp_path: Path):
    made = tokenize(config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl", ["", "a", "", "b"])))
    assert documents(tmp_path / "out") == [[97, 256], [98, 256]]
    assert (made.splits["train"].documents, made.splits["train"].empty_documents) == (2, 2)


@pytest.mark.parametrize("large_bytes", [1, 1000])
def test_bytes_of_a_text_without_ids_are_not_counted_as_those_of_the_cache(
    tmp_path: Path, large_bytes: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(work, "LARGE_BYTES", large_bytes)
    removes_x = {"type": "Replace", "pattern": {"String": "x"}, "content": ""}
    tokenizer = vocabulary_file(tmp_path, normalizer=removes_x)
    poems = write_poems(tmp_path / "poems.jsonl", ["xxx", "ab", "xx"])
    made = tokenize(config(tmp_path / "out", poems, tokenizer=tokenizer, special_tokens="none"))
    split = made.splits["train"]
    assert (split.documents, split.empty_documents, split.text_bytes) == (1, 2, 2)


def test_one_byte_of_text_is_a_cache_of_two_tokens(tmp_path: Path):
    made = tokenize(config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl", ["x"])))
    assert (made.num_train_tokens, made.splits["train"].text_bytes) == (2, 1)


@pytest.mark.parametrize("poems", [[], ["", ""]])
def test_no_documents_are_a_clear_error_and_no_cache(tmp_path: Path, poems: list[str]):
    path = write_poems(tmp_path / "poems.jsonl", poems)
    left_out = f" but {len(poems)} empty ones" if poems else ""
    with pytest.raises(
        DataError, match=rf"'train' has no documents: there are none{left_out} in .*poems\.jsonl; check"
    ):
        tokenize(config(tmp_path / "out", path))
    with pytest.raises(ConfigurationError):
        read_manifest(str(tmp_path / "out"))


def test_a_bad_record_stops_the_step_with_file_line_and_byte(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl")
    path.write_text(path.read_text() + '{"text": null}\n')
    with pytest.raises(BadRecordError, match=rf"poems\.jsonl, line {len(POEMS) + 1}, byte \d+: null: expected text"):
        tokenize(config(tmp_path / "out", path))


def test_held_out_documents_are_chosen_by_their_text_and_nothing_is_in_both(tmp_path: Path):
    poems = [f"poem number {number}" for number in range(200)]
    asked = config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl", poems), held_out=0.2)
    made = tokenize(asked)
    assert decoded(asked, "validation") == [poem for poem in poems if is_held_out(poem, 0.2)]
    assert decoded(asked) == [poem for poem in poems if not is_held_out(poem, 0.2)]
    assert made.has_validation
    assert sum(split.text_bytes for split in made.splits.values()) == sum(map(len, poems))


def test_a_fraction_that_catches_every_document_is_an_error_that_says_so(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl", ["x", "y", ""])
    with pytest.raises(
        DataError,
        match=r"'train' has no documents: of 2 documents in .*poems\.jsonl, held_out=0\.999 holds out all for "
        "validation; make held_out smaller",
    ):
        tokenize(config(tmp_path / "out", path, held_out=0.999))


def test_held_out_of_no_documents_blames_the_source(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl", ["", ""])
    with pytest.raises(
        DataError, match=r"'train' has no documents: there are none but 2 empty ones in .*; check the so"
    ):
        tokenize(config(tmp_path / "out", path, held_out=0.5))


def test_an_empty_validation_file_is_named(tmp_path: Path):
    path, held = write_poems(tmp_path / "poems.jsonl"), write_poems(tmp_path / "held.jsonl", [])
    with pytest.raises(DataError, match=r"'validation' has no documents: there are none in .*held\.jsonl; check"):
        tokenize(config(tmp_path / "out", path, validation=files(held)))


def test_a_file_that_vanishes_before_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = (write_poems(tmp_path / name) for name in ("a.jsonl", "b.jsonl"))

    def read_and_remove(piece: Piece, text_key: str, bad: BadRecords) -> Iterator[Document]:
        second.unlink(missing_ok=True)
        return read_documents(piece, text_key, bad)

    monkeypatch.setattr(examples, "read_documents", read_and_remove)
    with pytest.raises(DataError, match=r"b\.jsonl is there no more: run again when nobody changes the folder"):
        tokenize(config(tmp_path / "out", files(first, second), part_bytes=300))


@pytest.mark.parametrize("name", ["a b.jsonl", "Veilchen 東京.jsonl", "two\nlines.jsonl", "a'b\".jsonl", "-x.jsonl"])
def test_a_file_may_have_any_name_that_a_record_can_hold(tmp_path: Path, name: str):
    made = tokenize(config(tmp_path / "out", write_poems(tmp_path / name, ["x"])))
    assert made.num_train_tokens == 2
    assert read_manifest(str(tmp_path / "out")).parts[0].inputs[0].name == str(tmp_path / name)


def test_a_fraction_that_catches_no_document_is_an_error(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl", ["x"])
    with pytest.raises(
        DataError,
        match=r"'validation' has no documents: of 1 document in .*poems\.jsonl, held_out=0\.0001 holds out none; "
        "make held_out larger",
    ):
        tokenize(config(tmp_path / "out", path, held_out=0.0001))


def test_validation_files_are_left_out_of_training(tmp_path: Path):
    for name in ("a", "b", "c"):
        write_poems(tmp_path / f"{name}.jsonl", [name])
    (tmp_path / "link").mkdir()
    (tmp_path / "link/held.jsonl").symlink_to(tmp_path / "b.jsonl")
    asked = config(tmp_path / "out", files(tmp_path / "*.jsonl"), validation=files(tmp_path / "link"))
    tokenize(asked)
    assert (decoded(asked), decoded(asked, "validation")) == (["a", "c"], ["b"])
    everything = files(tmp_path / "*.jsonl")
    with pytest.raises(DataError, match=r"nothing is left to train on\. Name fewer with validation=, or .*held_out="):
        tokenize(config(tmp_path / "none", everything, validation=everything))


def test_a_validation_file_that_is_a_hard_link_of_a_training_file_is_left_out_of_training(tmp_path: Path):
    for name in ("a", "b"):
        write_poems(tmp_path / f"{name}.jsonl", [name])
    (tmp_path / "held").mkdir()
    os.link(tmp_path / "b.jsonl", tmp_path / "held/other.jsonl")
    asked = config(tmp_path / "out", files(tmp_path / "*.jsonl"), validation=files(tmp_path / "held"))
    tokenize(asked)
    assert (decoded(asked), decoded(asked, "validation")) == (["a"], ["b"])


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_poems(tmp_path / "poems.jsonl")

    class Meddler(work.ShardWriter):
        def close(self):
            with path.open("a") as stream:
                stream.write('{"text": "late"}\n')
            return super().close()

    monkeypatch.setattr(work, "ShardWriter", Meddler)
    with pytest.raises(DataError, match=r"poems\.jsonl changed while it was read"):
        tokenize(config(tmp_path / "out", path))


def test_progress_counts_megabytes_up_to_the_total(tmp_path: Path):
    seen: list[Progress] = []
    with progress_sink(seen.append):
        tokenize(config(tmp_path / "out", stdlib_source(10), part_bytes=20_000))
    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert seen[-1].done == seen[-1].total == sum(path.stat().st_size for path in stdlib_files(10)) / 1e6
    assert seen[-1].unit == "MB"


ROOT = Path(__file__).parents[3]

CHILD = """
import pathlib, pickle, sys
from marin.processing.tokenize.build import tokenize
from tests.processing.killed import kill_at
kill_at(sys.argv[2])
tokenize(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()))
"""


def killed_in_a_process(asked: TokenizeConfig, folder: Path, moment: str) -> None:
    folder.joinpath("config.pickle").write_bytes(cloudpickle.dumps(asked))
    command = [sys.executable, "-c", CHILD, str(folder / "config.pickle"), f"*/{moment}"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL


@pytest.mark.parametrize("moment", ["parts/part-00002.json", "train/part-0000[2-9].arrow.tmp", "manifest.json"])
def test_a_killed_step_is_finished_with_the_same_bytes_and_its_parts_are_not_redone(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
):
    tokenizer = vocabulary_file(tmp_path)
    asked = config(
        tmp_path / "out", stdlib_source(60), tokenizer=tokenizer, part_bytes=100_000, batch_bytes=1_000, held_out=0.1
    )
    killed_in_a_process(asked, tmp_path, moment)
    finished = len(list((tmp_path / "out/parts").glob("*.json")))
    if (tmp_path / "out/manifest.json").exists():
        finished = len(read_manifest(asked.output_path).parts)
    redone: list[int] = []
    make_part = build.make_part

    def counted(job: Job, part: Part, *rest: Any, **more: Any) -> PartRecord:
        redone.append(part.number)
        return make_part(job, part, *rest, **more)

    monkeypatch.setattr(build, "make_part", counted)
    again = tokenize(asked)
    monkeypatch.undo()
    fresh = tokenize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh")))
    assert again == fresh
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")
    assert finished >= 2
    assert redone == list(range(finished, len(read_manifest(asked.output_path).parts)))


def finish_but_for_the_manifest(asked: TokenizeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(build, "write_manifest", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tokenize(asked)
    assert list(Path(asked.output_path).glob("parts/*.json"))


@pytest.mark.parametrize("change", ["input", "recipe", "shard", "record", "grouping"])
def test_a_part_of_an_earlier_attempt_is_used_only_if_nothing_differs(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("a", "b", "c"):
        write_poems(tmp_path / f"{name}.jsonl", [*POEMS, name])
    asked = config(tmp_path / "out", files(tmp_path / "*.jsonl"), part_bytes=300)
    finish_but_for_the_manifest(asked, monkeypatch)
    match change:
        case "input":
            # As long as before, and with the same time stamps.
            before = (tmp_path / "b.jsonl").stat()
            write_poems(tmp_path / "b.jsonl", [*POEMS, "B"])
            os.utime(tmp_path / "b.jsonl", ns=(before.st_atime_ns, before.st_mtime_ns))
        case "recipe":
            asked = dataclasses.replace(asked, tokenizer=vocabulary_file(tmp_path / "v"))
        case "shard":
            (tmp_path / "out/train/part-00001.arrow").write_bytes(b"torn")
        case "record":
            (tmp_path / "out/parts/part-00001.json").write_bytes(b'{"part": 1')
        case _:
            asked = dataclasses.replace(asked, part_bytes=10**9)
    made = tokenize(asked)
    fresh = tokenize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh")))
    assert made == fresh
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


def test_a_part_that_was_damaged_on_the_disk_is_told_and_made_anew_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked = config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl"))
    finish_but_for_the_manifest(asked, monkeypatch)
    shard = tmp_path / "out/train/part-00000.arrow"
    data = bytearray(shard.read_bytes())
    [(offset, _)] = json.loads((tmp_path / "out/parts/part-00000.json").read_bytes())["shards"][0]["token_ranges"]
    data[offset] ^= 1
    shard.write_bytes(data)
    assert tokenize(asked) == tokenize(dataclasses.replace(asked, output_path=str(tmp_path / "fresh")))
    assert "part-00000.arrow is damaged: its content is not what its manifest says" in capsys.readouterr().err
    check_cache(asked.output_path)


def test_a_part_that_was_cut_short_by_a_sample_is_not_taken_for_the_whole(tmp_path: Path):
    asked = config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl"))
    assert tokenize(dataclasses.replace(asked, sample_count=1)).num_documents == 1
    assert tokenize(asked).num_documents == len(POEMS)


def test_a_template_that_adds_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def told(name: str, **changes: Any) -> str:
        tokenizer = vocabulary_file(tmp_path / name, **changes)
        poems = write_poems(tmp_path / "poems.jsonl")
        tokenize(config(tmp_path / f"{name}-out", poems, tokenizer=tokenizer, special_tokens="template"))
        return capsys.readouterr().err

    assert "post-processor of" in told("bare")
    assert "adds nothing, so that nothing stands between documents; 'eos' would put" in told("again")
    around = tokenizers.processors.TemplateProcessing(single="$A <s>", special_tokens=[("<s>", 1)])
    processor = json.loads(around.__getstate__())
    assert "adds nothing" not in told("around", post_processor=processor)


def test_the_log_tells_how_much_was_made_how_fast_and_by_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    poems = ["naïve — 東京 👩‍🚀"] * 50_000
    tokenize(config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl", poems)))
    size = len(poems[0].encode()) * len(poems)
    told = re.findall(r"^(\S+)M tokens of (\S+) MB of text in [0-9.]+ s by (.*)", capsys.readouterr().err, re.MULTILINE)
    assert told == [(f"{(size + len(poems)) / 1e6:.1f}", f"{size / 1e6:.1f}", "marin bytes 1, 1 worker")]
    assert read_manifest(str(tmp_path / "out")).shards("train")[0].text_bytes == size


def test_where_no_record_can_be_read_the_reasons_are_told(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_text('{"text": null}\n{}\n{"text": null}\n')
    with pytest.raises(
        DataError,
        match=r"'train' has no documents: what there is in .*poems\.jsonl can't be read: 2 null \(such as .*, line 1, "
        r".*1 missing key \(such as .*poems\.jsonl, line 2",
    ):
        tokenize(config(tmp_path / "out", path, on_bad_record="skip", max_bad_fraction=1))


def test_an_attempt_after_the_manifest_redoes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl"))
    made = tokenize(asked)
    monkeypatch.setattr(build, "make_part", None)
    assert tokenize(asked) == made


def test_the_record_names_the_inputs_and_their_content(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl")
    tokenize(config(tmp_path / "out", path))
    [part] = json.loads((tmp_path / "out/manifest.json").read_text())["parts"]
    assert [(each["name"], each["bytes"]) for each in part["inputs"]] == [(str(path), path.stat().st_size)]


def test_the_bytes_tokenizer_needs_no_file(tmp_path: Path):
    asked = config(tmp_path / "out", write_poems(tmp_path / "poems.jsonl"), tokenizer=BYTES)
    made = tokenize(asked)
    assert (made.vocab_size, made.dtype) == (257, "uint16")
    assert decoded(asked) == POEMS
    assert not (tmp_path / "out/tokenizer.json").exists()


def test_a_full_disk_is_told_with_the_path(tmp_path: Path):
    path = write_poems(tmp_path / "poems.jsonl", POEMS * 1000)
    (tmp_path / "out/train").mkdir(parents=True)
    (tmp_path / "out/train/part-00000.arrow.tmp").symlink_to("/dev/full")
    with pytest.raises(StorageFullError, match=r"out/train/part-00000\.arrow\.tmp: no room to write"):
        tokenize(config(tmp_path / "out", path))
