"""The normalize step: each text once, the first one, and the same bytes for any number of workers."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.errors import BadRecordError, DataError, StorageFullError
from marin.execution.artifact import at_path
from marin.execution.progress import Progress, progress_sink
from marin.processing.cleaning import build, duplicates, part_work, shards
from marin.processing.cleaning.manifest import read_manifest
from marin.processing.cleaning.reading import Found, read_found
from marin.processing.sources import files
from tests.processing.cleaning.small import POEMS, normalized, rows, texts, tree, write_documents


def first_ones(documents: list[str]) -> list[str]:
    return list(dict.fromkeys(text for text in documents if text))


inputs = st.lists(st.lists(st.text(st.sampled_from("aé東"), max_size=3), max_size=30), min_size=1, max_size=5)


@settings(max_examples=40)
@given(inputs, st.data())
def test_of_equal_texts_the_first_in_reading_order_stays_and_nothing_else_is_lost(files_: list[list[str]], data: Any):
    sizes = {"run": st.integers(1, 40), "bucket": st.integers(1, 40), "group": st.integers(1, 40)}
    drawn = {name: data.draw(numbers, name) for name, numbers in sizes.items()}
    shard_bytes = data.draw(st.integers(20, 2000), "shard_bytes")
    expected = [text for each in files_ for text in each]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_work, "RUN_DOCUMENTS", drawn["run"])
        patch.setattr(duplicates, "BUCKET_DOCUMENTS", drawn["bucket"])
        patch.setattr(shards, "GROUP_ROWS", drawn["group"])
        root = Path(folder)
        for number, each in enumerate(files_):
            write_documents(root / f"in/{number}.jsonl", each)
        if not any(expected):
            with pytest.raises(DataError, match="no document is left: there are none"):
                normalized(root / "out", root / "in", shard_bytes=shard_bytes)
            return
        made = normalized(root / "out", root / "in", shard_bytes=shard_bytes)
        assert texts(root / "out") == first_ones(expected)
        kept = len(first_ones(expected))
        assert (made.documents, made.documents_read, made.empty) == (kept, len(expected), expected.count(""))
        assert made.documents_read == made.documents + made.duplicates + made.empty
        at_path(made, str(root / "out")).verify()
        plain = normalized(root / "all", root / "in", shard_bytes=shard_bytes, deduplicate=False)
        assert texts(root / "all") == [text for text in expected if text]
        assert (plain.duplicates, plain.empty) == (0, made.empty)


def test_texts_are_kept_exactly_and_ids_are_digests_of_them(tmp_path: Path):
    made = normalized(tmp_path / "out", write_documents(tmp_path / "poems.jsonl", POEMS))
    assert texts(tmp_path / "out") == POEMS
    for row in rows(tmp_path / "out"):
        assert row["id"] == hashlib.sha256(row["text"].encode()).hexdigest()[:32]
    assert made.text_bytes == sum(len(text.encode()) for text in POEMS)


def test_a_source_is_the_file_and_which_record_of_it(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", ["a", "", 7, "b", None, "c"])
    normalized(tmp_path / "out", path, on_bad_record="skip", max_bad_fraction=0.5)
    assert [row["source"] for row in rows(tmp_path / "out")] == [f"{path}#1", f"{path}#4", f"{path}#6"]
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("whole")
    normalized(tmp_path / "whole", tmp_path / "text")
    assert [row["source"] for row in rows(tmp_path / "whole")] == [f"{tmp_path}/text/a.txt#1"]


def test_records_of_a_file_that_was_cut_count_from_the_byte_where_it_was(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", [f"poem {number}" for number in range(20)])
    normalized(tmp_path / "out", path, shard_bytes=100)
    content, found = path.read_bytes(), rows(tmp_path / "out")
    for row in found:
        piece, number = row["source"].removeprefix(str(path)).split("#")
        start = int(piece.removeprefix("@") or 0)
        begin = content.index(b"\n", start - 1) + 1 if start else 0
        line = content[begin:].splitlines()[int(number) - 1]
        assert json.loads(line)["text"] == row["text"]
    assert len({row["source"] for row in found}) == 20


def test_other_forms_of_a_text_are_made_only_if_they_are_asked_for_and_before_comparing(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", ["e\u0301\r\n", "é\n", "é\r", "ﬁ"])
    assert normalized(tmp_path / "as it is", path).documents == 4
    normalized(tmp_path / "nfc", path, unicode_form="NFC", line_ends="lf")
    assert texts(tmp_path / "nfc") == ["é\n", "ﬁ"]
    normalized(tmp_path / "nfkd", path, unicode_form="NFKD")
    assert texts(tmp_path / "nfkd") == [unicodedata.normalize("NFKD", text) for text in ("é\r\n", "é\n", "é\r", "fi")]


def test_all_documents_may_be_one_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(part_work, "RUN_DOCUMENTS", 10)
    for name in "abc":
        write_documents(tmp_path / f"in/{name}.jsonl", ["same"] * 40)
    made = normalized(tmp_path / "out", tmp_path / "in", shard_bytes=200)
    assert texts(tmp_path / "out") == ["same"]
    assert (made.documents, made.duplicates, made.shards) == (1, 119, 1)
    assert [path.name for path in (tmp_path / "out").glob("part-*")] == ["part-00000.parquet"]


@pytest.mark.parametrize(("poems", "left_out"), [([], ""), (["", ""], " but 2 empty ones")])
def test_no_documents_are_a_clear_error(tmp_path: Path, poems: list[str], left_out: str):
    path = write_documents(tmp_path / "poems.jsonl", poems)
    with pytest.raises(DataError, match=rf"no document is left: there are none{left_out} in .*poems\.jsonl; check"):
        normalized(tmp_path / "out", path)


def test_kept_fields_become_columns_of_text(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    records = [
        {"body": "a", "meta": {"url": "u", "tags": ["x", 1]}, "id": 7},
        {"body": "b", "meta": {"url": None}},
        {"body": "c", "id": "seven", "meta": {"url": {"é": True}}},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    keep = (("meta.url", "meta.url"), ("tags", "meta.tags"), ("their_id", "id"))
    made = normalized(tmp_path / "out", path, text_key="body", keep=keep)
    assert made.columns == ("id", "text", "source", "meta.url", "tags", "their_id")
    assert [(row["meta.url"], row["tags"], row["their_id"]) for row in rows(tmp_path / "out")] == [
        ("u", '["x",1]', "7"),
        (None, None, None),
        ('{"é":true}', None, "seven"),
    ]


def test_a_slip_in_the_name_of_a_kept_field_makes_no_column_of_nulls(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_text('{"text": "a", "meta": {"url": "u"}}\n')
    with pytest.raises(
        DataError, match=r"no document of .*poems\.jsonl has a field 'meta\.ulr': correct keep=, or leave"
    ):
        normalized(tmp_path / "out", path, keep=(("url", "meta.url"), ("ulr", "meta.ulr")))


def test_a_set_of_documents_keeps_its_sources_and_columns_when_it_is_read_again(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_text("".join(json.dumps({"text": text, "url": f"u{text}"}) + "\n" for text in "aba"))
    normalized(tmp_path / "one", path, keep=(("url", "url"),), deduplicate=False)
    normalized(tmp_path / "two", files(tmp_path / "one"), is_document_set=True)
    assert rows(tmp_path / "two") == rows(tmp_path / "one")[:2]


def test_bad_records_are_an_error_or_counted_up_to_a_fraction(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", ["a", None, "b", 3])
    with pytest.raises(BadRecordError, match=r"poems\.jsonl, line 2, byte 14: null"):
        normalized(tmp_path / "out", path)
    with pytest.raises(DataError, match=r"2 of 4 records of .*poems\.jsonl can't be read, more than max_bad_fraction"):
        normalized(tmp_path / "out", path, on_bad_record="skip")
    made = normalized(tmp_path / "out", path, on_bad_record="skip", max_bad_fraction=0.5)
    assert {each.reason: each.count for each in made.bad_records} == {"null": 1, "number": 1}
    assert made.bad_records[0].example.startswith(f"{path}, line 2")


def test_any_number_of_workers_makes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "_CREW_BYTES", 0)
    for number in range(6):
        poems = [f"poem {(number * 7 + place * place) % 61}" for place in range(80)]
        data = "".join(json.dumps({"text": poem}) + "\n" for poem in poems).encode()
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    made = [
        normalized(tmp_path / str(workers), files(tmp_path / "*.gz"), workers=workers, shard_bytes=1)
        for workers in (1, 3)
    ]
    assert made[0] == made[1]
    assert made[0].shards > 1
    assert tree(tmp_path / "1") == tree(tmp_path / "3")


def test_what_is_left_holds_nothing_but_shards_and_the_manifest(tmp_path: Path):
    made = normalized(tmp_path / "out", write_documents(tmp_path / "poems.jsonl", POEMS))
    assert sorted(tree(tmp_path / "out")) == ["documents.manifest", "part-00000.parquet"]
    [shard] = read_manifest(str(tmp_path / "out")).shards
    assert (shard.documents, shard.bytes) == (6, (tmp_path / "out/part-00000.parquet").stat().st_size)
    ids = "".join(row["id"] for row in rows(tmp_path / "out"))
    assert shard.content_sha256 == hashlib.sha256(ids.encode()).hexdigest()
    assert made.bytes == shard.bytes


def test_a_missing_or_cut_file_of_a_set_is_told(tmp_path: Path):
    made = at_path(
        normalized(tmp_path / "out", write_documents(tmp_path / "poems.jsonl", POEMS)), str(tmp_path / "out")
    )
    shard = tmp_path / "out/part-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"part-00000\.parquet has .* bytes, its manifest says .*: build it again"):
        made.verify()
    shard.unlink()
    with pytest.raises(DataError, match=r"part-00000\.parquet is missing: build it again"):
        made.verify()


def test_progress_tells_megabytes_then_buckets_then_shards(tmp_path: Path):
    seen: list[Progress] = []
    path = write_documents(tmp_path / "poems.jsonl", ["a", "b"] * 100)
    with progress_sink(seen.append):
        normalized(tmp_path / "out", path, shard_bytes=500)
    assert list(dict.fromkeys(progress.unit for progress in seen)) == ["MB", "buckets", "shards"]
    for unit in ("MB", "buckets", "shards"):
        done = [progress.done for progress in seen if progress.unit == unit]
        assert done == sorted(done)
        assert done[-1] == next(progress.total for progress in seen if progress.unit == unit)
    assert re.fullmatch(r"taking \d+ duplicates out", seen[-1].note)


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_documents(tmp_path / "poems.jsonl", POEMS)

    def meddling(*asked: Any) -> Iterator[Found]:
        yield from read_found(*asked)
        write_documents(path, ["late"])

    monkeypatch.setattr(part_work, "read_found", meddling)
    with pytest.raises(DataError, match=r"poems\.jsonl changed while it was read"):
        normalized(tmp_path / "out", path)


def test_a_full_disk_is_told_with_the_path(tmp_path: Path):
    path = write_documents(tmp_path / "poems.jsonl", [f"{number} {'x' * 300}" for number in range(5000)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/part-00000.parquet.tmp").symlink_to("/dev/full")
    with pytest.raises(StorageFullError, match=r"out/part-00000\.parquet"):
        normalized(tmp_path / "out", path)
