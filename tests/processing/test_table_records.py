"""Rows of Parquet files and of Arrow files and streams."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.errors import BadRecordError, ConfigurationError
from marin.processing.bad_records import BadRecords
from marin.processing.documents import ABSENT, no_text, read_documents, read_rows
from marin.processing.input_files import input_files
from marin.processing.pieces import Piece, pieces_of
from marin.processing.sources import files
from tests.processing.reading import POEMS, skipping, texts


def write_parquet(path: Path, table: pa.Table, rows: int = 2) -> Path:
    path = path.with_suffix(".parquet")
    pq.write_table(table, path, row_group_size=rows)
    return path


def write_arrow(path: Path, table: pa.Table, rows: int = 2) -> Path:
    path = path.with_suffix(".arrow")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_stream(path: Path, table: pa.Table, rows: int = 2) -> Path:
    path = path.with_suffix(".ipc")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_feather(path: Path, table: pa.Table, rows: int = 2) -> Path:
    path = path.with_suffix(".feather")
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


WRITERS = [write_parquet, write_arrow, write_stream, write_feather]
every_format = pytest.mark.parametrize("write", WRITERS)
Writer = Callable[..., Path]


@every_format
def test_the_rows_of_one_column_are_the_documents(tmp_path: Path, write: Writer):
    assert texts(write(tmp_path / "poems", pa.table({"id": range(4), "text": POEMS}))) == POEMS


@every_format
def test_a_table_without_rows_has_no_documents(tmp_path: Path, write: Writer):
    assert texts(write(tmp_path / "poems", pa.table({"text": pa.array([], pa.string())}))) == []


@every_format
def test_columns_may_be_large_dictionary_encoded_or_nested(tmp_path: Path, write: Writer):
    table = {
        "large": pa.array(["a", "b"], pa.large_string()),
        "view": pa.array(["a", "b"], pa.string_view()) if write is not write_parquet else pa.array(["a", "b"]),
        "dictionary": pa.array(["c", "c"]).dictionary_encode(),
        "meta": pa.array([{"text": "d", "deep": {"er": "x"}}, {"text": "e", "deep": {"er": "y"}}]),
        "a.b": ["f", "g"],
    }
    path = write(tmp_path / "poems", pa.table(table))
    found = {key: texts(path, text_key=key) for key in ("large", "view", "dictionary", "meta.text", "meta.deep.er")}
    assert list(found.values()) == [["a", "b"], ["a", "b"], ["c", "c"], ["d", "e"], ["x", "y"]]
    assert texts(path, text_key="a.b") == ["f", "g"]


@every_format
@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array(["a", None]), r"row 2: null: expected text in 'text', not null"),
        (pa.array(["a"] * 4 + [None]), r"row 5: null"),
        (pa.array([1, 2]), r"row 1: number: expected text in 'text', not a number, found '1'"),
        (pa.array([b"a", b"b"]), r"row 1: wrong type: expected text in 'text', not bytes"),
        (pa.array([b"a", b"\xff"]).view(pa.string()), r"row 2: invalid UTF-8: expected UTF-8 \(invalid start byte at"),
        (pa.array([0, 10**17 + 1], pa.timestamp("ns")), r"row \d: wrong type: expected"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, write: Writer, column: pa.Array, reason: str):
    path = write(tmp_path / "poems", pa.table({"text": column}))
    with pytest.raises(BadRecordError, match=rf"poems\.\w+, {reason}"):
        texts(path)


@every_format
def test_bad_rows_are_skipped_one_by_one(tmp_path: Path, write: Writer):
    column = pa.array([b"a", None, b"\xff", b"b", None]).view(pa.string())
    found, counts, examples = skipping(write(tmp_path / "poems", pa.table({"text": column})))
    assert found == ["a", "b"]
    assert counts == {"null": 2, "invalid UTF-8": 1}
    assert [example.split(", ")[-1] for example in examples] == ["row 2: 'None'", r"row 3: '\\xff'"]


@every_format
def test_the_null_of_a_struct_is_a_null_of_its_fields(tmp_path: Path, write: Writer):
    table = pa.table({"meta": pa.array([{"text": "a"}, None], pa.struct([("text", pa.string())]))})
    with pytest.raises(BadRecordError, match="row 2: null"):
        texts(write(tmp_path / "poems", table), text_key="meta.text")


@every_format
@pytest.mark.parametrize("key", ["text", "meta.text", "body.text"])
def test_a_table_without_the_column_lists_those_it_has(tmp_path: Path, write: Writer, key: str):
    path = write(tmp_path / "poems", pa.table({"body": ["a"], "id": [1], "meta": [{"other": 1}]}))
    with pytest.raises(
        BadRecordError,
        match=rf"row 1: missing key: .*'{key}'.* \(it has body, id, meta(; did .*)?\); mend",
    ):
        texts(path, text_key=key)
    _, counts, [example] = skipping(path, text_key=key)
    assert counts == {"missing key": 1}
    assert f"expected a field '{key}'" in example


@every_format
@pytest.mark.parametrize(("key", "meant"), [("txet", "'text'"), ("meta.boddy", "'meta.body'"), ("Text", "'text'")])
def test_a_column_that_was_nearly_named_is_suggested(tmp_path: Path, write: Writer, key: str, meant: str):
    path = write(tmp_path / "poems", pa.table({"text": ["a"], "meta": [{"body": "b"}]}))
    with pytest.raises(BadRecordError, match=rf"it has text, meta; did you mean {meant}\?\); mend"):
        texts(path, text_key=key)


@every_format
def test_of_a_row_without_a_column_the_others_are_shown(tmp_path: Path, write: Writer):
    [file] = input_files(files(write(tmp_path / "poems", pa.table({"id": [7]}))))

    def fit(values: tuple[Any, ...]) -> tuple[Any, ...]:
        raise no_text(values[1], "text")

    with pytest.raises(BadRecordError, match=r"missing key: .*\(it has id\), found '7'; mend"):
        list(read_rows(Piece(file=file), ["id", "text"], fit, BadRecords()))


@every_format
@pytest.mark.parametrize("left", [0, 4, -30])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, write: Writer, left: int):
    path = write(tmp_path / "poems", pa.table({"text": POEMS}))
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(BadRecordError, match=r"poems\.\w+, row \d: (damaged|truncated): expected a whole .*copy it"):
        texts(path)
    assert set(skipping(path)[1]) <= {"damaged", "truncated"}


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue().to_pybytes()


TABLE = pa.table({"text": POEMS, "meta": pa.array(["x", "x", "y", "z"]).dictionary_encode()})
STREAMS = pytest.mark.parametrize(
    "options", [{}, {"use_legacy_format": True}, {"emit_dictionary_deltas": True}, {"compression": "lz4"}]
)


@STREAMS
def test_a_stream_that_was_cut_anywhere_is_truncated(tmp_path: Path, options: dict[str, Any]):
    """Between two batches nothing but the missing mark of its end tells."""
    whole, path = stream(TABLE, **options), tmp_path / "poems.ipc"
    path.write_bytes(whole)
    assert texts(path) == POEMS
    counted = set[int]()
    for size in [*range(0, len(whole), 8), *range(len(whole) - 12, len(whole))]:
        path.write_bytes(whole[:size])
        for key in ("text", "meta"):
            with pytest.raises(BadRecordError, match=r"poems\.ipc, row \d: (damaged|truncated): expected"):
                texts(path, text_key=key)
        found, counts, _ = skipping(path)
        assert found == POEMS[: len(found)]
        assert sum(counts.values()) == 1
        counted.add(len(found))
    assert counted == {0, 2, 4}


@STREAMS
def test_a_stream_without_its_end_says_what_is_missing(tmp_path: Path, options: dict[str, Any]):
    path = tmp_path / "poems.ipc"
    path.write_bytes(stream(TABLE, **options)[: -4 if "use_legacy_format" in options else -8])
    with pytest.raises(
        BadRecordError, match=r"row 5: truncated: expected the mark that ends an Arrow stream, so copy it again, or if"
    ):
        texts(path)
    assert skipping(path)[:2] == (POEMS, {"truncated": 1})


def test_what_follows_the_end_of_a_stream_is_not_passed_over(tmp_path: Path):
    path = tmp_path / "poems.ipc"
    path.write_bytes(2 * stream(TABLE))
    with pytest.raises(BadRecordError, match=r"row 5: damaged: expected nothing after the mark .* make a file of each"):
        texts(path)


@every_format
def test_the_rows_before_a_damage_are_kept(tmp_path: Path, write: Writer):
    poems = [os.urandom(2000).hex() for _ in range(100)]
    path = write(tmp_path / "poems", pa.table({"text": poems}), rows=10)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 8000] = bytes(8000)
    path.write_bytes(data)
    found, _, _ = skipping(path)
    assert found[:20] == poems[:20]


def test_only_the_columns_that_are_asked_for_are_decoded(tmp_path: Path):
    """The other column, and the other field of the struct, are overwritten: who decodes them fails."""
    text = [f"{number:04d} " * 200 for number in range(50)]
    other = [f"other {number} " * 200 for number in range(50)]
    table = pa.table({"meta": [{"other": o, "text": t} for o, t in zip(other, text, strict=True)], "other": other})
    path = tmp_path / "poems.parquet"
    pq.write_table(table, path, compression="gzip", use_dictionary=False)
    group = pq.ParquetFile(path).metadata.row_group(0)
    data = bytearray(path.read_bytes())
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema != "meta.text":
            start = column.data_page_offset
            data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)
    assert texts(path, text_key="meta.text") == text
    with pytest.raises(BadRecordError):
        texts(path, text_key="meta.other")


@every_format
def test_pieces_are_row_groups_or_record_batches_and_cover_the_file(tmp_path: Path, write: Writer):
    poems = [f"poem {number} " * 50 for number in range(100)]
    [file] = input_files(files(write(tmp_path / "poems", pa.table({"text": poems}), rows=7)))
    for piece_bytes in (1, 1000, file.size // 3, file.size, 10**9):
        pieces = pieces_of(file, piece_bytes)
        assert pieces == pieces_of(file, piece_bytes)
        read = [each for piece in pieces for each in read_documents(piece, "text", BadRecords())]
        assert [document.text for document in read] == poems
    if write is not write_stream:
        assert len(pieces_of(file, 1)) == 15


@every_format
def test_a_bad_row_of_a_later_piece_is_named_by_its_number_in_the_file(tmp_path: Path, write: Writer):
    table = pa.table({"text": ["a"] * 9 + [None]})
    [file] = input_files(files(write(tmp_path / "poems", table)))
    with pytest.raises(BadRecordError, match=r"row 10: null"):
        list(read_documents(pieces_of(file, 1)[-1], "text", BadRecords()))


@every_format
def test_rows_hold_the_fields_asked_for_in_that_order(tmp_path: Path, write: Writer):
    messages = [[{"role": "user", "content": "a"}], []]
    [file] = input_files(files(write(tmp_path / "poems", pa.table({"id": [1, 2], "messages": messages}))))

    def fit(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return values

    rows = list(read_rows(Piece(file=file), ["messages", "none", "id"], fit, BadRecords()))
    assert [row.values for row in rows] == [(messages[0], ABSENT, 1), ([], ABSENT, 2)]
    assert [row.values for row in read_rows(Piece(file=file), ["none"], fit, BadRecords())] == [(ABSENT,)] * 2


@pytest.mark.parametrize("name", ["poems.parquet.gz", "poems.arrow.zst"])
def test_a_columnar_file_in_an_archive_is_refused(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigurationError, match=r"compresses within itself.*unpack it"):
        texts(tmp_path / name)


@every_format
def test_flipped_bytes_are_told_or_do_no_harm(tmp_path: Path, write: Writer):
    """Read without a check, some of these end the process."""
    poems = [f"poem é {number} " * 20 for number in range(60)]
    path = write(tmp_path / "poems", pa.table({"text": poems, "meta": [{"text": poem} for poem in poems]}), rows=10)
    whole, chance = path.read_bytes(), random.Random(0)
    for _ in range(100):
        data = bytearray(whole)
        for at in chance.choices(range(len(data)), k=3):
            data[at] = chance.randrange(256)
        path.write_bytes(data)
        for key in ("text", "meta.text"):
            found, counts, _ = skipping(path, text_key=key)
            assert len(found) <= 60
            assert set(counts) <= {"damaged", "truncated", "invalid UTF-8", "missing key", "null"}


@pytest.mark.parametrize("write", [write_parquet, write_arrow, write_stream])
def test_of_two_columns_of_one_name_none_is_taken(tmp_path: Path, write: Callable[[Path, pa.Table], Path]):
    table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array(["c"])], names=["text", "text", "other"])
    write(tmp_path / "double", table)
    with pytest.raises(BadRecordError, match=r"one column 'text', and there are 2: rename the others"):
        texts(tmp_path)
