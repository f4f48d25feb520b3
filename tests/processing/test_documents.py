"""Reading documents: exact texts from every format, and a plain error for all that can't be read."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import BadRecordError, ConfigurationError, DataError
from marin.processing.documents import is_held_out, read_documents
from marin.processing.input_files import file_sha256, input_files
from marin.processing.sources import FileFormat, files


def texts(path: Path, *, text_key: str = "text", format: FileFormat | None = None) -> list[str]:
    return [
        document.text for file in input_files(files(path, format=format)) for document in read_documents(file, text_key)
    ]


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


POEMS = ["Roses are red", "Veilchen sind blau\r\n", "東京\u2028\u0000", " "]
LINES = jsonl(*({"text": poem} for poem in POEMS))
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


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


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_a_truncated_archive_is_an_error_that_names_the_file(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    data = b"".join(jsonl({"text": os.urandom(50).hex()}) for _ in range(2000))
    path.write_bytes(COMPRESS[suffix](data)[:-20])
    with pytest.raises(BadRecordError, match=rf"poems\.jsonl{suffix}: damaged or truncated"):
        texts(path)


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_a_damaged_later_member_is_an_error_and_not_left_out(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    member = COMPRESS[suffix](LINES)
    path.write_bytes(member + b"\x01" + member[1:])
    with pytest.raises(BadRecordError, match=rf"poems\.jsonl{suffix}: damaged or truncated"):
        texts(path)


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


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESS if suffix])
def test_a_file_that_is_not_what_its_suffix_says_is_an_error(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    path.write_bytes(LINES)
    with pytest.raises(BadRecordError, match="damaged or truncated"):
        texts(path)


def test_byte_order_mark_blank_lines_carriage_returns_and_no_final_newline_are_no_trouble(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n   \n{"text": "b"}')
    assert texts(path) == ["a", "b"]


def test_empty_files_have_no_documents(tmp_path: Path):
    for name in ("a.jsonl", "b.json", "c.jsonl.zst", "d.jsonl.gz"):
        (tmp_path / name).write_bytes(COMPRESS["." + name.rsplit(".", 1)[1]](b"") if name.count(".") > 1 else b"")
    assert texts(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "b"', "not JSON"),
        (b'{"text": NaN}', "not JSON"),
        (b'{"text": "\\ud800"}', "not JSON"),
        (b'{"text": "\xff"}', r"not JSON \(byte 10 of it is not UTF-8"),
        (b'{"body": "b", "id": 1}', r"no field 'text'; it has body, id: name the text's field with text_key="),
        (b'{"text": null}', "'text' is null, not text"),
        (b'{"text": 7}', "'text' is a number, not text"),
        (b'{"text": ["b"]}', "'text' is a list, not text"),
        (b'{"text": true}', "'text' is a truth value, not text"),
        (b'["b"]', "expected an object with 'text', found a list"),
        (b'"b"', "expected an object with 'text', found text"),
    ],
)
def test_a_bad_record_is_named_by_file_line_and_byte(tmp_path: Path, line: bytes, reason: str):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' + line + b'\n{"text": "c"}\n')
    with pytest.raises(BadRecordError, match=rf"poems\.jsonl, line 3, byte 15: {reason}"):
        texts(path)


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
        (b"[]", []),
    ],
)
def test_a_json_file_is_an_array_an_object_or_json_lines(tmp_path: Path, data: bytes, expected: list[str]):
    path = tmp_path / "poems.json"
    path.write_bytes(data)
    assert texts(path) == expected


def test_a_bad_record_of_an_array_is_named_by_its_number(tmp_path: Path):
    path = tmp_path / "poems.json"
    path.write_bytes(b'[{"text": "a"}, {"text": null}]')
    with pytest.raises(BadRecordError, match=r"poems\.json, record 2: 'text' is null"):
        texts(path)


def test_a_text_file_is_one_document_whose_line_ends_are_kept(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n\n")
    (tmp_path / "b.md.gz").write_bytes(gzip.compress(b"# Veilchen"))
    assert texts(tmp_path) == ["one\r\ntwo\n\n", "# Veilchen"]


def test_a_text_file_that_is_not_utf8_is_named_with_line_and_byte(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xffo")
    with pytest.raises(BadRecordError, match=r"a\.txt, line 2, byte 6: not UTF-8"):
        texts(path)


def test_any_file_is_text_if_the_author_says_so(tmp_path: Path):
    (tmp_path / "a.py").write_text("import this\n")
    assert texts(tmp_path / "*.py", format="text") == ["import this\n"]
    with pytest.raises(ConfigurationError, match=r"a\.py: its suffix names no format .* format='text'"):
        texts(tmp_path / "*.py")


def test_parquet_gives_the_rows_of_one_column(tmp_path: Path):
    path = tmp_path / "poems.parquet"
    pq.write_table(pa.table({"id": range(4), "text": POEMS}), path, row_group_size=2)
    assert texts(path) == POEMS


def test_parquet_columns_may_be_large_dictionary_encoded_or_nested(tmp_path: Path):
    path = tmp_path / "poems.parquet"
    table = {
        "large": pa.array(["a", "b"], pa.large_string()),
        "dictionary": pa.array(["c", "c"]).dictionary_encode(),
        "meta": pa.array([{"text": "d"}, {"text": "e"}]),
    }
    pq.write_table(pa.table(table), path)
    assert texts(path, text_key="large") == ["a", "b"]
    assert texts(path, text_key="dictionary") == ["c", "c"]
    assert texts(path, text_key="meta.text") == ["d", "e"]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array(["a", None]), r"row 2: 'text' is null"),
        (pa.array([1, 2]), r"row 1: 'text' is a number"),
        (pa.array([b"a", b"b"]), r"row 1: 'text' is bytes"),
    ],
)
def test_a_bad_parquet_row_is_named(tmp_path: Path, column: pa.Array, reason: str):
    path = tmp_path / "poems.parquet"
    pq.write_table(pa.table({"text": column}), path)
    with pytest.raises(BadRecordError, match=rf"poems\.parquet, {reason}"):
        texts(path)


def test_a_parquet_file_without_the_column_lists_those_it_has(tmp_path: Path):
    path = tmp_path / "poems.parquet"
    pq.write_table(pa.table({"body": ["a"], "id": [1]}), path)
    with pytest.raises(BadRecordError, match=r"no column 'text'; it has body, id: choose one with text_key="):
        texts(path)


def test_a_damaged_parquet_file_is_an_error_that_names_it(tmp_path: Path):
    path = tmp_path / "poems.parquet"
    pq.write_table(pa.table({"text": POEMS}), path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadRecordError, match=r"poems\.parquet: damaged or truncated parquet file"):
        texts(path)


def test_folders_and_globs_give_sorted_files_and_each_file_once(tmp_path: Path):
    for name in ("b/2.jsonl", "b/10.jsonl", "a/z.jsonl", "B.jsonl", ".hidden.jsonl", "b/.git/x.jsonl", "b/notes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(jsonl({"text": name}))
    names = ["B.jsonl", "a/z.jsonl", "b/10.jsonl", "b/2.jsonl"]
    assert texts(tmp_path) == names
    assert texts(tmp_path / "**/*.jsonl") == names
    both = files(tmp_path / "b/*.jsonl", tmp_path)
    assert [file.name.removeprefix(f"{tmp_path}/") for file in input_files(both)] == [*names[2:], *names[:2]]


def test_excluded_files_folders_and_globs_are_left_out(tmp_path: Path):
    for name in ("a.jsonl", "drafts/b.jsonl", "c-old.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    source = files(tmp_path, exclude=[tmp_path / "drafts", tmp_path / "*-old.jsonl"])
    assert [file.name for file in input_files(source)] == [str(tmp_path / "a.jsonl")]
    with pytest.raises(DataError, match="no files are left"):
        input_files(files(tmp_path, exclude=tmp_path))


def test_a_name_with_glob_characters_that_exists_is_meant_as_it_is(tmp_path: Path):
    path = tmp_path / "poems[1].jsonl"
    path.write_bytes(jsonl({"text": "a"}))
    assert texts(path) == ["a"]


def test_relative_paths_are_those_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.jsonl").write_bytes(jsonl({"text": "a"}))
    monkeypatch.chdir(tmp_path)
    assert [file.name for file in input_files(files("a.jsonl"))] == [str(tmp_path / "a.jsonl")]


def test_a_pattern_that_matches_nothing_says_how_far_the_path_exists(tmp_path: Path):
    (tmp_path / "raw").mkdir()
    with pytest.raises(DataError, match=r"matches no file \(the folder .*/raw exists, 'poems/\*\.jsonl' is not in it"):
        input_files(files(tmp_path / "raw/poems/*.jsonl"))
    (tmp_path / "raw/poems.jsonl").mkdir()
    with pytest.raises(
        DataError, match=r"'.*/p\*\.jsonl' matches folders only, such as .*/raw/poems\.jsonl: add '/\*'"
    ):
        input_files(files(tmp_path / "raw/p*.jsonl"))
    with pytest.raises(DataError, match="no file with a known suffix"):
        input_files(files(tmp_path / "raw"))


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("poem.jsonl", r"'poems\.jsonl'"),
        ("Poems.JSONL", r"'poems\.jsonl'"),
        ("poems.json*.gz", r"'poems\.jsonl'"),
        ("drafs/a.jsonl", "'drafts'"),
        ("drafs/**/*.jsonl", "'drafts'"),
        ("drafts/aa.jsonl", r"'a\.jsonl'"),
        ("peoms*.jsonl", r"'poems\.jsonl'"),
    ],
)
def test_what_matches_nothing_is_told_with_near_names(tmp_path: Path, asked: str, near: str):
    (tmp_path / "drafts").mkdir()
    for name in ("poems.jsonl", "other.txt", "drafts/a.jsonl"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=rf"is not in it; did you mean {near}\?"):
        input_files(files(tmp_path / asked))


def test_links_to_folders_are_followed_once_also_in_circles(tmp_path: Path):
    for folder in ("corpus", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(jsonl({"text": folder}))
    (tmp_path / "corpus/linked").symlink_to(tmp_path / "elsewhere")
    # Two circles: who follows them as far as the system lets, does so 2 ** 40 times.
    for name in ("one", "two"):
        (tmp_path / "corpus" / name).symlink_to(tmp_path / "corpus")
    for source in ("corpus", "corpus/**/*.jsonl", "**/*.jsonl", "corpus/**/**/a.jsonl", "corpus/**"):
        assert texts(tmp_path / source) == ["corpus", "elsewhere"]


def test_a_folder_with_glob_characters_below_a_pattern_is_meant_as_it_is(tmp_path: Path):
    (tmp_path / "a[1]/b").mkdir(parents=True)
    (tmp_path / "a[1]/b/poems.jsonl").write_bytes(jsonl({"text": "a"}))
    assert texts(tmp_path / "**/b/*.jsonl") == ["a"]


@contextlib.contextmanager
def forbidden(path: Path) -> Iterator[None]:
    """Nobody may read ``path``, and who is root becomes somebody whom permissions bind."""
    mode, user = path.stat().st_mode, os.geteuid()
    path.chmod(0)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        path.chmod(mode)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """As ``tmp_path``, but others may read it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.parametrize("pattern", ["", "**/*.jsonl", "inner/*.jsonl", "*/*.jsonl", "inner", "inner/a.jsonl"])
def test_a_folder_that_may_not_be_read_is_an_error_and_not_left_out(shared_folder: Path, pattern: str):
    for name in ("inner", "other"):
        (shared_folder / name).mkdir()
        (shared_folder / name / "a.jsonl").write_bytes(LINES)
    with forbidden(shared_folder / "inner"):
        with pytest.raises(DataError, match=r"inner (can't be read: |exists, but its permissions forbid)"):
            texts(shared_folder / pattern)


def test_a_file_that_may_not_be_read_is_named(shared_folder: Path):
    path = shared_folder / "a.jsonl"
    path.write_bytes(LINES)
    with forbidden(path):
        for read in (lambda: texts(shared_folder), lambda: file_sha256(str(path))):
            with pytest.raises(DataError, match=r"a\.jsonl can't be read: Permission denied; mend that, or"):
                read()


def test_a_pipe_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl is a pipe or device, which can't be read twice"):
        input_files(files(tmp_path))


def test_a_link_to_itself_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl is a link to a file that is not there"):
        input_files(files(tmp_path / "a.jsonl"))


def test_a_name_that_no_record_can_hold_is_refused(tmp_path: Path):
    path = os.fsencode(tmp_path) + b"/\xff.jsonl"
    with open(path, "wb") as file:
        file.write(LINES)
    with pytest.raises(DataError, match=r"\\udcff\.jsonl': the name is not UTF-8"):
        input_files(files(tmp_path))


def test_a_name_of_two_lines_is_told_in_one(tmp_path: Path):
    path = tmp_path / "two\nlines.jsonl"
    path.write_bytes(b"no")
    with pytest.raises(BadRecordError, match=r"two\\nlines\.jsonl', line 1, byte 0: not JSON"):
        texts(path)


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    [file] = input_files(files(path))
    path.unlink()
    with pytest.raises(DataError, match=r"a\.jsonl can't be read: No such file"):
        list(read_documents(file, "text"))


def test_a_parquet_file_without_a_byte_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(BadRecordError, match=r"a\.parquet: damaged or truncated parquet file"):
        texts(tmp_path)


def test_a_dangling_link_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl is a link to a file that is not there"):
        input_files(files(tmp_path))


def test_consumed_bytes_grow_to_the_size_of_the_file(tmp_path: Path):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(LINES)
    [file] = input_files(files(path))
    consumed = [document.consumed for document in read_documents(file, "text")]
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
