"""Pieces of JSON lines: each record is in the piece in which its line begins, and in no other."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import BadRecordError
from marin.processing import json_records
from marin.processing.bad_records import BadRecords
from marin.processing.documents import read_documents
from marin.processing.input_files import InputFile, input_files
from marin.processing.pieces import Piece, pieces_of
from marin.processing.sources import files
from tests.processing.reading import COMPRESS, jsonl


@contextlib.contextmanager
def in_memory(data: bytes) -> Iterator[InputFile]:
    with open(os.memfd_create("poems"), "wb", buffering=0) as file:
        file.write(data)
        [found] = input_files(files(f"/proc/self/fd/{file.fileno()}", format="jsonl"))
        yield found


def read(piece: Piece) -> list[str]:
    return [document.text for document in read_documents(piece, "text", BadRecords())]


lines = st.lists(st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.none()), max_size=30)


@given(lines, st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.booleans(), st.integers(1, 200))
def test_every_record_is_in_exactly_one_piece(
    poems: list[str | None], end: bytes, mark: bool, final: bool, piece_bytes: int
):
    blank_or_record = [b"" if poem is None else json.dumps({"text": poem}).encode() for poem in poems]
    data = (b"\xef\xbb\xbf" if mark else b"") + end.join(blank_or_record) + (end if final else b"")
    with in_memory(data) as file:
        pieces = pieces_of(file, piece_bytes)
        assert pieces == pieces_of(file, piece_bytes)
        assert [text for piece in pieces for text in read(piece)] == [poem for poem in poems if poem is not None]
        assert all(piece.stop == following.start for piece, following in itertools.pairwise(pieces))


@given(lines.map(lambda poems: [poem or "" for poem in poems]), st.lists(st.integers(0, 400), max_size=4))
def test_it_does_not_matter_where_the_cuts_are(poems: list[str], cuts: list[int]):
    data = jsonl(*({"text": poem} for poem in poems))
    bounds = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    with in_memory(data) as file:
        pieces = [Piece(file=file, start=a, stop=b) for a, b in itertools.pairwise(bounds)]
        assert [text for piece in pieces for text in read(piece)] == poems


def test_a_line_longer_than_many_pieces_belongs_to_the_first_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_records, "LONG_LINE", 1 << 20)
    poems = ["a", "long " * 1_000_000, "b", "ö\n" * 1_000_000, "c"]
    path = tmp_path / "poems.jsonl"
    path.write_bytes(jsonl(*({"text": poem} for poem in poems)))
    [file] = input_files(files(path))
    found = [read(piece) for piece in pieces_of(file, 500_000)]
    assert len(found) > 10
    assert [text for texts in found for text in texts] == poems


def test_a_bad_record_of_a_later_piece_is_named_by_its_line_in_the_file(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    good = jsonl({"text": "a" * 50})
    path.write_bytes(good * 70 + b"no\n" + good * 30)
    [file] = input_files(files(path))
    for piece_bytes in (10, 100, len(good), 3000, 10**6):
        with pytest.raises(BadRecordError, match=rf"line 71, byte {70 * len(good)}: broken JSON"):
            [text for piece in pieces_of(file, piece_bytes) for text in read(piece)]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json", "a.txt", "a.csv"])
def test_what_can_not_be_cut_is_one_piece(tmp_path: Path, name: str):
    path = tmp_path / name
    path.write_bytes(COMPRESS[".gz" if name.endswith("gz") else ""](jsonl({"text": "a"}, {"text": "b"})))
    [file] = input_files(files(path))
    assert pieces_of(file, 1) == [Piece(file=file)]


def test_the_bytes_consumed_of_a_piece_grow_to_its_length(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(jsonl(*({"text": f"{number:06d}"} for number in range(1000)))[:-1])
    [file] = input_files(files(path))
    total = 0
    for piece in pieces_of(file, 3000):
        consumed = [document.consumed for document in read_documents(piece, "text", BadRecords())]
        assert consumed == sorted(consumed)
        total = piece.start + consumed[-1]
    assert total == file.size
