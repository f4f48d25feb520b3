"""Memory does not grow with the file: it is that of one batch, or of the longest document."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

READ = """
import json, resource, sys
from marin.processing.bad_records import BadRecords
from marin.processing.documents import read_documents
from marin.processing.input_files import input_files
from marin.processing.pieces import Piece
from marin.processing.sources import files

path, limit = sys.argv[1], int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
[file] = input_files(files(path))
size = longest = 0
for document in read_documents(Piece(file=file), "text", BadRecords()):
    size += len(document.text)
    longest = max(longest, len(document.text))
# Not ru_maxrss, which begins with the memory of the process that started this one.
[peak] = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps({"size": size, "longest": longest, "peak": peak}))
"""
MB = 1_000_000


@functools.cache
def megabyte() -> str:
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(2, 9))) for _ in range(5000)]
    words += ["end\n", '"quoted"', "back\\slash"] * 100
    return " ".join(chance.choices(words, k=200_000))[:MB]


def documents(size: int) -> Iterator[str]:
    """Of different lengths, together about ``size`` characters."""
    lengths = itertools.cycle([50, 700, 20_000, 2_000, 200_000])
    while size > 0:
        length = next(lengths)
        yield megabyte()[:length]
        size -= length


def write_lines(path: Path, size: int, longest: int) -> None:
    lines = "".join(json.dumps({"id": 7, "text": text}) + "\n" for text in documents(4 * MB)).encode()
    _write(path, lines, size, longest, b"\n")


def write_array(path: Path, size: int, longest: int) -> None:
    elements = "".join(json.dumps({"id": 7, "text": text}) + ", " for text in documents(4 * MB)).encode()
    _write(path, elements, size, longest, b", ", begin=b"[", end=b'{"text": "last"}]')


def _write(
    path: Path, part: bytes, size: int, longest: int, separator: bytes, begin: bytes = b"", end: bytes = b""
) -> None:
    opened = {".gz": functools.partial(gzip.open, compresslevel=1), ".zst": zstandard.open}.get(path.suffix, open)
    with opened(path, "wb") as file:
        file.write(begin)
        for number in range(size // (4 * MB)):
            if longest and number == size // (8 * MB):
                file.write(b'{"text": "')
                for _ in range(longest // MB):
                    file.write(json.dumps(megabyte())[1:-1].encode())
                file.write(b'", "id": 7}' + separator)
            file.write(part)
        file.write(end)


def write_text(path: Path, size: int, longest: int) -> None:
    del size
    with open(path, "w") as file:
        file.writelines(itertools.repeat(megabyte(), longest // MB))


def write_csv(path: Path, size: int, longest: int) -> None:
    rows = io.StringIO(newline="")
    csv.writer(rows).writerows([7, text] for text in documents(4 * MB))
    _write(path, rows.getvalue().encode(), size, longest, b"", begin=b"id,text\n")


def write_table(path: Path, size: int, longest: int) -> None:
    """One row group of all; record batches of 4 MB."""
    del longest
    batch = pa.record_batch({"id": [7] * len(texts := list(documents(4 * MB))), "text": texts})
    count = size // (4 * MB)
    if path.suffix == ".parquet":
        table = pa.Table.from_batches([batch] * count)
        pq.write_table(table, path, row_group_size=table.num_rows, use_dictionary=False, compression="none")
        return
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        for _ in range(count):
            writer.write_batch(batch)


def read(path: Path, limit: int = 0) -> dict[str, int]:
    command = [sys.executable, "-c", READ, str(path), str(limit)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    ("name", "write", "longest", "most"),
    [
        ("a.jsonl", write_lines, 30 * MB, 150 * MB),
        ("a.json", write_array, 30 * MB, 160 * MB),
        ("a.csv", write_csv, 0, 150 * MB),
        ("a.parquet", write_table, 0, 220 * MB),
        ("a.arrow", write_table, 0, 170 * MB),
    ],
)
def test_two_hundred_megabytes_are_read_in_the_memory_of_a_batch(
    tmp_path: Path, name: str, write: Callable[[Path, int, int], None], longest: int, most: int
):
    path = tmp_path / name
    write(path, 200 * MB, longest)
    measured = read(path)
    assert measured["size"] > 199 * MB + longest
    assert measured["longest"] == max(longest, 200_000)
    assert measured["peak"] < most


GIGABYTE = 1 << 30


@pytest.mark.heavy
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "write", "size"),
    [
        ("a.jsonl", write_lines, 4000 * MB),
        ("a.jsonl.gz", write_lines, 1000 * MB),
        ("a.jsonl.zst", write_lines, 4000 * MB),
        ("a.json", write_array, 1000 * MB),
        ("a.txt", write_text, 0),
    ],
)
def test_four_gigabytes_and_half_a_gigabyte_in_one_document_are_read_in_one_gigabyte(
    tmp_path: Path, name: str, write: Callable[[Path, int, int], None], size: int
):
    path = tmp_path / name
    write(path, size, 500 * MB)
    measured = read(path, GIGABYTE)
    assert measured["longest"] == 500 * MB
    assert measured["size"] > 0.99 * size
    assert measured["peak"] < GIGABYTE


@pytest.mark.heavy
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "write"), [("a.csv", write_csv), ("a.parquet", write_table), ("a.arrow", write_table)]
)
def test_four_gigabytes_of_rows_are_read_in_one_gigabyte(
    tmp_path: Path, name: str, write: Callable[[Path, int, int], None]
):
    path = tmp_path / name
    write(path, 4000 * MB, 0)
    measured = read(path, GIGABYTE)
    assert measured["size"] > 0.99 * 4000 * MB
    assert measured["peak"] < GIGABYTE
