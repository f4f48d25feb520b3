"""Reading documents: exact texts from every format."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import BadRecordError, ConfigurationError
from marin.processing import json_records
from marin.processing.bad_records import BadRecords
from marin.processing.documents import ABSENT, Unfit, is_held_out, read_documents, read_rows
from marin.processing.input_files import input_files
from marin.processing.pieces import Piece
from marin.processing.sources import files
from tests.processing.reading import COMPRESS, LINES, POEMS, jsonl, texts


@pytest.mark.parametrize("suffix", COMPRESS)
def test_json_lines_are_read_plain_and_compressed(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](LINES))
    assert texts(path) == POEMS


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_archives_of_several_members_are_read_to_the_end(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](LINES) + COMPRESS[suffix](LINES))
    assert texts(path) == POEMS * 2


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_zeros_behind_an_archive_are_no_trouble(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    path.write_bytes(COMPRESS[suffix](LINES) + bytes(512))
    assert texts(path) == POEMS


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_without_a_byte_has_no_documents_whatever_its_suffix(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    path.touch()
    assert texts(path) == []


def test_byte_order_mark_blank_lines_carriage_returns_and_no_final_newline_are_no_trouble(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n   \n{"text": "b"}')
    assert texts(path) == ["a", "b"]


def test_empty_files_have_no_documents(tmp_path: Path):
    for name in ("a.jsonl", "b.json", "c.jsonl.zst", "d.jsonl.gz"):
        (tmp_path / name).write_bytes(COMPRESS["." + name.rsplit(".", 1)[1]](b"") if name.count(".") > 1 else b"")
    assert texts(tmp_path) == []


def test_the_text_may_lie_in_a_nested_field_or_under_a_name_with_a_dot(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(jsonl({"meta": {"text": "nested"}}, {"meta.text": "flat", "meta": {"text": "other"}}))
    assert texts(path, text_key="meta.text") == ["nested", "flat"]


def test_the_last_of_two_equal_keys_counts(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(b'{"text": "a", "text": "b"}\n')
    assert texts(path) == ["b"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (json.dumps([{"text": "a"}, {"text": "b"}], indent=2).encode(), ["a", "b"]),
        (json.dumps({"text": "a"}, indent=2).encode(), ["a"]),
        (b'\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n', ["a", "b"]),
        (b'{"text": "a"}', ["a"]),
        (b'{"text": "a"}\r\n\r\n{"text": "b"}', ["a", "b"]),
        (b'{"meta": {},\n"text": "a"}', ["a"]),
        (b'\n\n {"text":\n"a"}\n\n', ["a"]),
        (b' \n [\n{"text": "a"}\n]\n', ["a"]),
        (b'[{"text": "a"}]\n', ["a"]),
        (b"[]", []),
    ],
)
def test_a_json_file_is_an_array_an_object_or_json_lines(tmp_path: Path, data: bytes, expected: list[str]):
    path = tmp_path / "poems.json"
    path.write_bytes(data)
    assert texts(path) == expected


def test_a_text_file_is_one_document_whose_line_ends_are_kept(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\n")
    (tmp_path / "b.md.gz").write_bytes(gzip.compress(b"# Veilchen"))
    assert texts(tmp_path) == ["one\r\ntwo\n\n", "# Veilchen"]


def test_consumed_bytes_grow_to_the_size_of_the_file(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(LINES)
    [file] = input_files(files(path))
    consumed = [document.consumed for document in read_documents(Piece(file=file), "text", BadRecords())]
    assert consumed == sorted(consumed)
    assert consumed[-1] == file.size == len(LINES)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_json_lines_give_back_any_texts(poems: list[str]):
    lines = jsonl(*({"text": poem} for poem in poems))
    with open(os.memfd_create("poems"), "wb", buffering=0) as file:
        file.write(lines)
        assert texts(Path(f"/proc/self/fd/{file.fileno()}"), format="jsonl") == poems


def test_held_out_documents_are_a_fraction_and_a_larger_fraction_contains_a_smaller():
    poems = [f"poem {number}" for number in range(20_000)]
    held = {poem for poem in poems if is_held_out(poem, 0.05)}
    assert 800 < len(held) < 1200
    assert held < {poem for poem in poems if is_held_out(poem, 0.1)}


@pytest.mark.parametrize("name", ["poems.jsonl", "poems.json", "poems.csv", "poems.parquet", "poems.arrow"])
def test_line_ends_of_unicode_end_no_line_and_empty_documents_are_documents(tmp_path: Path, name: str):
    poems = ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg", "", "\r", " "]
    path = tmp_path / name
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps({"text": poem}, ensure_ascii=False) + "\n" for poem in poems))
        case ".json":
            path.write_text(json.dumps([{"text": poem} for poem in poems], ensure_ascii=False))
        case ".csv":
            path.write_bytes(b"text\n" + "".join(f'"{poem}"\n' for poem in poems).encode())
        case ".parquet":
            pq.write_table(pa.table({"text": poems}), path)
        case _:
            with pa.ipc.new_file(str(path), (table := pa.table({"text": poems})).schema) as writer:
                writer.write_table(table)
    assert texts(path) == poems


def test_an_empty_text_file_is_an_empty_document(tmp_path: Path):
    (tmp_path / "a.txt").touch()
    assert texts(tmp_path) == [""]


def test_zstd_files_with_a_long_window_and_frames_to_skip_are_read(tmp_path: Path):
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = frame.compress(LINES) + frame.flush()
    path = tmp_path / "poems.jsonl.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + packed + b"\x5f\x2a\x4d\x18\x00\x00\x00\x00" + packed)
    assert texts(path) == POEMS * 2


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_line_that_is_decoded_as_it_arrives_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str):
    monkeypatch.setattr(json_records, "LONG_LINE", 1 << 20)
    poems = ["a", 'é\n"' * 1_500_000, "b", "long " * 500_000]
    path = tmp_path / f"poems.jsonl{suffix}"
    lines = b"".join(json.dumps({"meta": {"text": poem}, "more": poem[:5]}).encode() + b"\n" for poem in poems)
    path.write_bytes(COMPRESS[suffix](lines[:-1]))
    assert texts(path, text_key="meta.text") == poems


@pytest.mark.parametrize("name", ["poems.jsonl", "poems.csv"])
def test_rows_hold_the_fields_asked_for_as_they_were_fitted(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(jsonl({"id": "1", "n": "7"}, {"id": "2"}) if name.endswith("l") else b"id,n\n1,7\n2,x\n")

    def fit(values: tuple[Any, ...]) -> tuple[Any, ...]:
        number, name = values
        if number is ABSENT or not number.isdigit():
            raise Unfit("no number", "digits in 'n'")
        return int(number), name

    [file] = input_files(files(path))
    bad = BadRecords("skip")
    assert list(read_rows(Piece(file=file), ["n", "id"], fit, bad)) == [((7, "1"), 22 if name.endswith("l") else 9)]
    assert [(each.reason, each.count) for each in bad.counts] == [("no number", 1)]
    with pytest.raises(BadRecordError, match=r"line \d, byte \d+: no number: expected digits in 'n'"):
        list(read_rows(Piece(file=file), ["n", "id"], fit, BadRecords()))


def test_a_text_has_no_fields(tmp_path: Path):
    (tmp_path / "a.txt").touch()
    [file] = input_files(files(tmp_path))
    with pytest.raises(ConfigurationError, match=r"a\.txt is one text, without the fields messages"):
        read_rows(Piece(file=file), ["messages"], lambda values: values, BadRecords())


def test_whether_a_long_text_is_held_out_depends_on_all_of_it():
    poem = "東京 " * 1_000_000
    digest = hashlib.blake2b(poem.encode(), digest_size=8).digest()
    fraction = int.from_bytes(digest, "big") / 2**64
    assert is_held_out(poem, fraction + 1e-9)
    assert not is_held_out(poem, fraction - 1e-9)
