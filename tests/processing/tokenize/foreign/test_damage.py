"""Files that are cut off, of a strange type, or do not belong together are told, each with what is wrong with it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.errors import DataError
from marin.processing.tokenize.open_stream import open_stream
from marin.processing.tokenize.tokenize import TokenizedCache
from tests.processing.tokenize.foreign.files import GOLDEN, copy_of, write_llmc, write_megatron, write_nanogpt

IDX, BIN = "train_text_document.idx", "train_text_document.bin"
DS = "train.ds"
ARROW = "train/data-00001-of-00002.arrow"
PARQUET = "train-00000-of-00001.parquet"


def cut(name: str, count: int) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:-count])


def remove(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).unlink()


def patch(name: str, offset: int, data: bytes) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        old = (path / name).read_bytes()
        (path / name).write_bytes(old[:offset] + data + old[offset + len(data) :])

    return change


def write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(data)


def folder(name: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return change


def dead_link(name: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).symlink_to(path / "gone")

    return change


def lengths(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


# Of Megatron's index: the header has 34 bytes, then 7 lengths, 7 places and 7 bounds of documents.
DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "idx without bin": ("megatron", remove(BIN), rf"{IDX} has no {BIN} beside it"),
    "bin is cut": ("megatron", cut(BIN, 2), rf"{BIN} has 292 bytes, its \.idx says 294 of uint16"),
    "idx is cut": ("megatron", cut(IDX, 8), rf"{IDX} is cut off|{IDX} has 166 bytes, its header says 174"),
    "idx has no whole header": ("megatron", write(IDX, b"MMIDIDX\0\0\1\0"), "does not begin with MMIDIDX"),
    "idx is empty": ("megatron", write(IDX, b""), "does not begin with MMIDIDX"),
    "idx of another program": ("megatron", write(IDX, b"PACK" * 20), "does not begin with MMIDIDX"),
    "idx of the older kind": ("megatron", patch(IDX, 0, b"TNTIDX\0\0"), "older kind .TNTIDX"),
    "idx of a later version": ("megatron", patch(IDX, 9, struct.pack("<Q", 2)), "has version 2 of the Megatron index"),
    "big-endian idx": ("megatron", patch(IDX, 9, struct.pack(">Q", 1)), "or the file is big-endian"),
    "ids are floats": ("megatron", patch(IDX, 17, b"\6"), r"data are floats .type code 6."),
    "unknown type": ("megatron", patch(IDX, 17, b"\11"), "has type code 9, which is none of 1, 2, 3, 4, 5, 8"),
    "type does not fit": ("megatron", patch(IDX, 17, b"\4"), rf"{BIN} has 294 bytes, its \.idx says"),
    "multimodal": ("megatron", lambda path: (path / IDX).open("ab").write(b"\0" * 7), "is of a multimodal data set"),
    "more behind the index": ("megatron", lambda path: (path / IDX).open("ab").write(b"\0"), "its header says 174"),
    "lengths and places": ("megatron", patch(IDX, 34, lengths(33, 41)), "places of its sequences are not what"),
    "places overflow": ("megatron", patch(IDX, 70, struct.pack("<q", -5)), "old versions wrote such above 2.31 bytes"),
    "bounds do not ascend": ("megatron", patch(IDX, 126, struct.pack("<q", 6)), "the document ends do not ascend"),
    "bounds end early": ("megatron", patch(IDX, 166, struct.pack("<q", 6)), "do not cover its 7 sequences"),
    "ds is gone": ("datatrove-masked", remove(DS), rf"{DS} is missing, of which the side files are there"),
    "ds is cut": ("datatrove-masked", cut(DS, 4), r"holds 146 tokens of 4 bytes, train\.ds\.metadata says 147"),
    "ds is cut within a token": ("datatrove-masked", cut(DS, 3), "no whole number of tokens of 4 bytes"),
    "ds.index is cut": ("datatrove-masked", cut(f"{DS}.index", 8), r"train\.ds\.index says"),
    "ds.index descends": ("datatrove-masked", patch(f"{DS}.index", 0, struct.pack("<Q", 99)), "do not ascend"),
    "ds.metadata is no text of datatrove": (
        "datatrove-masked",
        write(f"{DS}.metadata", b"bytes|four\n147"),
        r"train\.ds\.metadata is not what datatrove writes",
    ),
    "width of 3": ("datatrove-masked", write(f"{DS}.metadata", b"bytes|3"), "whole number of tokens of 3 bytes"),
    "width of the wrong kind": ("datatrove-masked", write(f"{DS}.metadata", b"bytes|2\n294"), r"\.ds\.index says 147"),
    "ds.loss is cut": ("datatrove-masked", cut(f"{DS}.loss", 1), r"train\.ds\.loss has 146 bytes, one per token"),
    "arrow is cut": ("arrow", cut(ARROW, 100), r"data-00001-of-00002\.arrow .*cut off"),
    "arrow is cut between batches": (
        "arrow",
        cut(ARROW, 8),
        "has no end-of-stream mark: it is cut off, or still",
    ),
    "arrow shard is gone": ("arrow", remove(ARROW), r"is missing, which state\.json beside it names"),
    "arrow is no arrow": ("arrow", write(ARROW, b"text" * 99), "cut off"),
    "arrow state is cut": (
        "arrow",
        cut("train/state.json", 9),
        r"train/state\.json, which lists the files of its folder in their order, can't be read",
    ),
    "ds.index is no whole number": (
        "datatrove-masked",
        lambda path: (path / f"{DS}.index").open("ab").write(b"\0" * 4),
        r"train\.ds\.index has 44 bytes, which are no whole number of document ends of 8 bytes",
    ),
    "ds.index begins below 0": (
        "datatrove-masked",
        patch(f"{DS}.index", 0, struct.pack("<q", -5)),
        r"train\.ds\.index: its first document ends at -5, in front of its first token",
    ),
    "ds.index is a folder": ("datatrove-masked", folder(f"{DS}.index"), r"train\.ds\.index can't be read: Is a dir"),
    "ds.metadata is a folder": ("datatrove-masked", folder(f"{DS}.metadata"), r"metadata can't be read: Is a dir"),
    "ds.loss is a dead link": ("datatrove-masked", dead_link(f"{DS}.loss"), r"\.loss is a link to a file that is not"),
    "bin is a dead link": ("megatron", dead_link(BIN), rf"{BIN} is a link to a file that is not there: mend it"),
    "parquet is empty": ("parquet", write(PARQUET, b""), "can't be read as Parquet .* it is cut off"),
    "arrow is empty": ("arrow", write(ARROW, b""), "has no end-of-stream mark: it is cut off"),
    "parquet is cut": ("parquet", cut(PARQUET, 10), "can't be read as Parquet .* it is cut off"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_told(tmp_path: Path, kind: str):
    name, damage, message = DAMAGE[kind]
    path = copy_of(name, tmp_path / "cache")
    TokenizedCache.from_source(str(path), {"tokenizer": "bytes"})
    damage(path)
    with pytest.raises(DataError, match=message):
        TokenizedCache.from_source(str(path), {"tokenizer": "bytes"})


def test_tokens_of_datatrove_without_any_side_file_are_refused(tmp_path: Path):
    (tmp_path / "a.ds").write_bytes(b"\1\0\2\0")
    with pytest.raises(DataError, match=r"does not say how wide its tokens are: put a\.ds\.metadata or \.index beside"):
        open_stream(str(tmp_path))
    (tmp_path / "a.ds.index").write_bytes(struct.pack("<2Q", 1, 2))
    assert open_stream(str(tmp_path)).document_ends(0, 2).tolist() == [1, 2]
    (tmp_path / "a.ds.index").unlink()
    (tmp_path / "a.ds.metadata").write_text("Unknown Tokenizer|2\n2\n2.00 T")
    assert open_stream(str(tmp_path)).document_ends(0, 2).tolist() == [2]


def test_a_headerless_file_that_can_not_be_uint16_is_refused(tmp_path: Path):
    (tmp_path / "train.bin").write_bytes(b"\1\0\2")
    with pytest.raises(DataError, match="has 3 bytes, an odd number"):
        open_stream(str(tmp_path))
    np.arange(1000, 1200, dtype="<i4").tofile(tmp_path / "train.bin")
    with pytest.raises(DataError, match=r"seems to hold ids of 4 bytes .* if it is Megatron's, put its \.idx beside"):
        open_stream(str(tmp_path))


def test_headers_of_llmc_that_do_not_fit_are_refused(tmp_path: Path):
    file = tmp_path / "a.bin"
    write_llmc(file, [1, 2, 3], count=4)
    cut_off = r"has 1,030 bytes, its header of 1,024 bytes says 4 tokens of uint16, 1,032 bytes in all: it is cut off"
    with pytest.raises(DataError, match=cut_off):
        open_stream(str(tmp_path))
    write_llmc(file, [1, 2, 3], count=2)
    with pytest.raises(DataError, match="says 2 tokens of uint16, 1,028 bytes in all: there is more behind them, so"):
        open_stream(str(tmp_path))
    write_llmc(file, [1, 2, 3], count=-1)
    with pytest.raises(DataError, match=r"says 4,294,967,295 tokens of uint16, .* it is cut off"):
        open_stream(str(tmp_path))
    write_llmc(file, [1, 2, 3], version=7)
    with pytest.raises(DataError, match="of version 7 with magic 20240520; known are version 1 with magic"):
        open_stream(str(tmp_path))
    write_llmc(file, [1, 2, 3])
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match="it is cut off"):
        open_stream(str(tmp_path))
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(DataError, match="has 500 bytes, fewer than the header"):
        open_stream(str(tmp_path))
    file.write_bytes(struct.pack(">3i", 20240520, 1, 0).ljust(1024, b"\0"))
    with pytest.raises(DataError, match="is a big-endian llm"):
        open_stream(str(tmp_path))


def test_two_tokens_that_look_like_a_magic_number_are_tokens(tmp_path: Path):
    write_nanogpt(tmp_path / "a.bin", [*struct.unpack("<2H", struct.pack("<i", 20240520)), *range(600)])
    assert open_stream(str(tmp_path)).num_tokens == 602


COLUMNS: dict[str, tuple[pa.Array, str]] = {
    "a null row": (pa.array([[1], None], pa.list_(pa.int32())), "row 1 of a batch of 2 has null for input_ids"),
    "a null id": (pa.array([[1], [2, None]], pa.list_(pa.int32())), "1 values within input_ids are null"),
    "floats": (pa.array([[1.0]], pa.list_(pa.float32())), r"input_ids is list<.*float>, and lists of integers"),
    "no lists": (pa.array([1, 2]), "input_ids is int64, and lists of integers are needed"),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_columns_that_are_no_ids_are_refused(tmp_path: Path, kind: str, suffix: str):
    column, message = COLUMNS[kind]
    write_table(tmp_path / f"a.{suffix}", pa.table({"input_ids": column}))
    with pytest.raises(DataError, match=message):
        TokenizedCache.from_source(str(tmp_path), {"tokenizer": "bytes"})


def write_table(file: Path, table: pa.Table, compression: str | None = None) -> None:
    if file.suffix == ".parquet":
        pq.write_table(table, file, row_group_size=2)
    else:
        with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table, max_chunksize=2)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.uint16()), pa.list_(pa.int32(), 3)])
@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_lists_of_every_kind_are_read(tmp_path: Path, kind: pa.DataType, suffix: str):
    rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [13, 14, 15]]
    write_table(tmp_path / f"a.{suffix}", pa.table({"input_ids": pa.array(rows, kind), "other": list("abcde")}))
    stream = open_stream(str(tmp_path))
    assert stream.tokens(2, 12).tolist() == list(range(3, 15))
    assert stream.document_ends(0, 15).tolist() == [3, 6, 9, 12, 15]


def test_empty_rows_are_no_documents(tmp_path: Path):
    rows = [[], [1, 2], [], [], [3], []]
    for suffix in ("arrow", "parquet"):
        (tmp_path / suffix).mkdir()
        write_table(tmp_path / suffix / f"a.{suffix}", pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32()))}))
        cache = TokenizedCache.from_source(str(tmp_path / suffix), {"tokenizer": "bytes"})
        assert (cache.splits["train"].documents, cache.splits["train"].empty_documents) == (2, 4)
        assert [(document.number, document.ids.tolist()) for document in cache.sample(9)] == [(0, [1, 2]), (1, [3])]
        assert len(cache.sample(1)) == 1


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("attention_mask", [[1, 1, 0], [1, 0]], "attention_mask is 0 for 2 ids of input_ids, which are padding"),
        ("labels", [[1, 2, 3], [-100, 5]], "labels is -100 for 1 ids of input_ids"),
        ("labels", [[1, 2], [4, 5, 6]], "labels has other lengths than input_ids"),
        ("labels", [[1, 2, 3], None], "has null for labels"),
        ("attention_mask", [[1, 1, 1], [1, 1]], None),
    ],
)
def test_ids_that_other_columns_mask_are_not_trained_on_in_silence(
    tmp_path: Path, suffix: str, name: str, rows: list[list[int]], message: str | None
):
    columns = {"input_ids": [[1, 2, 3], [4, 5]], name: rows}
    table = pa.table({key: pa.array(column, pa.list_(pa.int64())) for key, column in columns.items()})
    table = table.append_column("labels", pa.array([0, -100])) if name != "labels" else table
    write_table(tmp_path / f"a.{suffix}", table)
    if message is None:
        assert TokenizedCache.from_source(str(tmp_path), {"tokenizer": "bytes"}).num_train_tokens == 5
        return
    with pytest.raises(DataError, match=message):
        TokenizedCache.from_source(str(tmp_path), {"tokenizer": "bytes"})


def test_a_mask_of_booleans_is_a_mask(tmp_path: Path):
    mask = pa.array([[True, False]], pa.list_(pa.bool_()))
    write_table(tmp_path / "a.arrow", pa.table({"input_ids": pa.array([[1, 2]]), "attention_mask": mask}))
    with pytest.raises(DataError, match="attention_mask is 0 for 1 ids"):
        TokenizedCache.from_source(str(tmp_path), {"tokenizer": "bytes"})


def test_compressed_arrow_is_refused_as_it_can_not_be_mapped(tmp_path: Path):
    table = pa.table({"input_ids": pa.array([[1] * 10_000], pa.list_(pa.int32()))})
    write_table(tmp_path / "a.arrow", table, compression="lz4")
    with pytest.raises(DataError, match="is compressed, and can't be mapped: write it without compression, or as Parq"):
        open_stream(str(tmp_path))


def test_parquet_without_statistics_is_counted_by_reading_it(tmp_path: Path):
    rows = [[1, 2], [], [3], [4, 5, 6]]
    table = pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32()))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2, write_statistics=False)
    assert open_stream(str(tmp_path)).tokens(0, 6).tolist() == [1, 2, 3, 4, 5, 6]


def test_left_over_files_beside_a_saved_data_set_are_not_read(tmp_path: Path):
    path = copy_of("arrow", tmp_path / "cache")
    (path / "train" / "cache-1234.arrow").write_bytes((path / ARROW).read_bytes())
    assert open_stream(str(path)).num_tokens == open_stream(str(GOLDEN / "arrow")).num_tokens
    state = path / "train" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"_data_files": [{"filename": "cache-1234.arrow"}]}))
    assert open_stream(str(path)).num_tokens < open_stream(str(GOLDEN / "arrow")).num_tokens


def test_a_state_of_another_program_hides_no_files(tmp_path: Path):
    path = copy_of("arrow", tmp_path / "cache")
    (path / "train/state.json").write_text('{"step": 7}')
    assert open_stream(str(path)).num_tokens == open_stream(str(GOLDEN / "arrow")).num_tokens


def test_sequences_are_documents_where_megatron_lists_none(tmp_path: Path):
    write_megatron(tmp_path / "a", [[1, 2], [], [3]], [0])
    stream = open_stream(str(tmp_path))
    assert (stream.num_documents, stream.document_ends(0, 3).tolist()) == (3, [2, 3])
