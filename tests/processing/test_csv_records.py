"""CSV: a header, quotes that may hold commas and line ends, and a fault that costs one record."""

from __future__ import annotations

import csv
import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import BadRecordError
from marin.processing import csv_records
from tests.processing.reading import skipping, texts


def test_the_header_names_the_columns_and_quotes_hold_line_ends(tmp_path: Path):
    path = tmp_path / "poems.csv"
    path.write_bytes(b'\xef\xbb\xbfid,text\r\n1,"Roses, are\nred\r\n"\r\n\r\n2,"say ""hi"""\n3,\n4,last')
    assert texts(path) == ["Roses, are\nred\r\n", 'say "hi"', "", "last"]
    assert texts(path, text_key="id") == ["1", "2", "3", "4"]


def test_compressed_files_and_empty_ones_are_read(tmp_path: Path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text\na\n") + gzip.compress(b"b\n"))
    (tmp_path / "b.csv").write_bytes(b"")
    (tmp_path / "c.csv").write_bytes(b"text\n")
    assert texts(tmp_path) == ["a", "b"]


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=3, max_size=3)))
def test_what_python_writes_is_given_back(rows: list[list[str]]):
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["id", "text", "more"], *rows])
    with open(os.memfd_create("poems"), "wb", buffering=0) as file:
        file.write(table.getvalue().encode())
        assert texts(f"/proc/self/fd/{file.fileno()}", format="csv") == [text for _, text, _ in rows]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1", r"broken CSV: expected 2 fields as in the header \(1 here\)"),
        (b"1,b,c", r"broken CSV: expected 2 fields as in the header \(3 here\)"),
        (b'1,"b"c', "broken CSV: expected fields between commas"),
        (b'1,"b', "broken CSV: expected fields between commas"),
        (b"1,\xff", r"invalid UTF-8: expected UTF-8 \(invalid start byte at byte 2 of a line\)"),
    ],
)
def test_a_broken_record_is_named_and_costs_no_other(tmp_path: Path, record: bytes, reason: str):
    path = tmp_path / "poems.csv"
    path.write_bytes(b'id,text\n0,"a\na"\n' + record + b"\n2,d\n3,e\n")
    with pytest.raises(BadRecordError, match=rf"poems\.csv, line 4, byte 16: {reason}"):
        texts(path)
    found, counts, _ = skipping(path)
    assert found == ["a\na", "d", "e"]
    assert counts == {reason.split(":")[0]: 1}


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path):
    path = tmp_path / "poems.csv"
    path.write_bytes(b"id;text\n1;b\n")
    with pytest.raises(BadRecordError, match=r"line 2, byte 8: missing key: .* \(it has id;text\)"):
        texts(path)


@pytest.mark.parametrize("end", ["\n", " "])
def test_a_quote_that_is_not_closed_is_noticed_before_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
):
    monkeypatch.setattr(csv_records, "LARGEST_RECORD", 3 << 20)
    path = tmp_path / "poems.csv"
    path.write_text('id,text\n1,"open\n2,' + f"words{end}" * 1_500_000)
    with pytest.raises(BadRecordError, match=r"line 2, byte 8: broken CSV: .*a quote is not closed within 3 MB"):
        texts(path)


def test_a_long_field_is_read(tmp_path: Path):
    path = tmp_path / "poems.csv"
    path.write_text('id,text\n1,"' + "long " * 1_000_000 + '"\n')
    assert texts(path) == ["long " * 1_000_000]
