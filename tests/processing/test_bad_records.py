"""What can't be read is an error that names its place, or is counted by its reason, as the policy says."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from marin.errors import BadRecordError, ConfigurationError, DataError
from marin.processing.bad_records import BadRecordCount, BadRecords, check_fraction, check_policy, merge_counts
from marin.processing.documents import read_documents
from marin.processing.input_files import input_files
from marin.processing.pieces import Piece
from marin.processing.sources import files
from tests.processing.reading import COMPRESS, LINES, POEMS, jsonl, skipping, texts

ARCHIVES = [suffix for suffix in COMPRESS if suffix]
BAD_LINES = {
    b'{"text": "b"': ("broken JSON", r"expected JSON \(unexpected end of data at column 13\)"),
    b'{"text": "b"} {}': ("broken JSON", r"expected JSON \(unexpected content after"),
    b'{"text": NaN}': ("NaN literal", "expected JSON, which has no NaN, found"),
    b'{"text": "b", "score": -Infinity}': ("NaN literal", "expected JSON, which has no -Infinity, found"),
    b'{"text": "\\ud800"}': ("lone surrogate", r"expected characters \(no low surrogate in string at column 11\)"),
    b'{"text": "\xff"}': ("invalid UTF-8", r"expected UTF-8 \(invalid start byte at its byte 10\)"),
    b'{"body": "b", "id": 1}': (
        "missing key",
        r"expected a field 'text', or another one named with text_key= \(it has body, id\)",
    ),
    b'{"text": null}': ("null", "expected text in 'text', not null"),
    b'{"text": 7}': ("number", r"expected text in 'text', not a number, found '{\"text\": 7}'"),
    b'{"text": ["b"]}': ("wrong type", "expected text in 'text', not a list"),
    b'{"text": true}': ("wrong type", "expected text in 'text', not a truth value"),
    b'["b"]': ("wrong type", r"expected an object with 'text', found '\[\"b\"\]'"),
    b'"b"': ("wrong type", "expected an object with 'text'"),
    b"[" * 2000: ("broken JSON", r"expected JSON \(depth limit exceeded"),
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_record_is_named_by_file_line_and_byte_with_the_ways_out(tmp_path: Path, line: bytes):
    path = tmp_path / "poems.jsonl"
    path.write_bytes(b'{"text": "a"}\n\n' + line + b'\n{"text": "c"}\n')
    reason, expected = BAD_LINES[line]
    with pytest.raises(BadRecordError, match=rf"poems\.jsonl, line 3, byte 15: {reason}: {expected}") as caught:
        texts(path)
    ways_out = "; mend or remove it, or leave such records out with on_bad_record='skip'"
    assert str(caught.value).endswith(ways_out)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["poems.jsonl", "poems.jsonl.gz", "poems.json"])
def test_skipped_records_are_counted_by_reason_with_the_first_of_each_kind(tmp_path: Path, name: str):
    path = tmp_path / name
    good = b'{"text": "a"}'
    lines = b"".join(good + b"\n" + line + b"\n" for line in BAD_LINES)
    path.write_bytes(COMPRESS[".gz" if name.endswith(".gz") else ""](lines))
    found, counts, examples = skipping(path)
    assert found == ["a"] * len(BAD_LINES)
    assert counts == {
        "broken JSON": 3,
        "NaN literal": 2,
        "lone surrogate": 1,
        "invalid UTF-8": 1,
        "missing key": 1,
        "null": 1,
        "number": 1,
        "wrong type": 4,
    }
    assert examples[0] == f'{path}, line 2, byte 14: \'{{"text": "b"\''
    assert all(len(example) < len(str(path)) + 130 for example in examples)


def test_a_bad_record_of_an_array_is_named_by_its_number_and_byte(tmp_path: Path):
    path = tmp_path / "poems.json"
    path.write_bytes(b'[{"text": "a"},\n {"text": null}]')
    with pytest.raises(BadRecordError, match=r"poems\.json, record 2, byte 15: null: expected text in 'text'"):
        texts(path)


def test_json_lines_under_another_name_may_begin_with_a_broken_one(tmp_path: Path):
    path = tmp_path / "poems.json"
    path.write_bytes(b'{"text": "a" "b"}\n{"text": "c"}\n')
    assert skipping(path)[:2] == (["c"], {"broken JSON": 1})


def test_of_an_array_the_sound_elements_are_kept(tmp_path: Path):
    path = tmp_path / "poems.json"
    path.write_bytes(b'[{"text": "a"}, {"text": NaN}, 7, {"text": "b"} {}, , {"text": "\\"]"}, {"text": "c"}]')
    found, counts, _ = skipping(path)
    assert found == ["a", '"]', "c"]
    assert counts == {"NaN literal": 1, "wrong type": 1, "broken JSON": 2}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'[{"text": "a"}, {"text": "b"', "truncated"),
        (b'[{"text": "a"}, {"text": "b', "truncated"),
        (b'[{"text": "a"},', "truncated"),
        (b'[{"text": "a"}] [{"text": "b"}]', "broken JSON"),
    ],
)
def test_an_array_that_does_not_end_with_the_file_is_told(tmp_path: Path, data: bytes, reason: str):
    path = tmp_path / "poems.json"
    path.write_bytes(data)
    with pytest.raises(BadRecordError, match=rf"record 2, byte \d+: {reason}"):
        texts(path)
    assert skipping(path)[:2] == (["a"], {reason: 1})


def test_a_text_file_that_is_not_utf8_is_named_with_line_and_byte(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntw\xffo\n\n")
    with pytest.raises(BadRecordError, match=r"line 2, byte 6: invalid UTF-8: .*; convert .* exclude=\), found"):
        texts(path)
    path.write_bytes(b"\xef\xbb\xbf" + b"one\n" * 400_000 + "ö".encode()[:1])
    with pytest.raises(BadRecordError, match=r"a\.txt, line 400001, byte 1600003: invalid UTF-8"):
        texts(path)
    assert skipping(path)[:2] == ([], {"invalid UTF-8": 1})


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_of_a_truncated_archive_the_whole_lines_are_kept_and_the_rest_counts_once(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    poems = [os.urandom(50).hex() for _ in range(20_000)]
    data = b"".join(jsonl({"text": poem}) for poem in poems)
    path.write_bytes(COMPRESS[suffix](data)[:-2000])
    with pytest.raises(BadRecordError, match=rf"poems\.jsonl{suffix}, line \d+, byte \d+: truncated: expected a whole"):
        texts(path)
    found, counts, [example] = skipping(path)
    assert counts == {"truncated": 1}
    assert 0 < len(found) < len(poems)
    assert found == poems[: len(found)]
    assert f", line {len(found) + 1}, byte {len(found) * len(jsonl({'text': poems[0]}))}: " in example


@pytest.mark.parametrize("suffix", ARCHIVES)
def test_a_damaged_later_member_is_an_error_and_not_left_out(tmp_path: Path, suffix: str):
    path = tmp_path / f"poems.jsonl{suffix}"
    member = COMPRESS[suffix](LINES)
    path.write_bytes(member + b"\x01" + member[1:])
    with pytest.raises(BadRecordError, match=rf"poems\.jsonl{suffix}, line \d, byte \d+: damaged"):
        texts(path)
    assert skipping(path)[:2] == (POEMS, {"damaged": 1})


@pytest.mark.parametrize("suffix", ARCHIVES)
@pytest.mark.parametrize("format", ["jsonl", "json", "csv", "txt"])
def test_a_file_that_is_not_what_its_suffix_says_is_an_error(tmp_path: Path, suffix: str, format: str):
    path = tmp_path / f"poems.{format}{suffix}"
    path.write_bytes(LINES)
    with pytest.raises(BadRecordError, match=r"poems.*: damaged: expected a whole .* file .*copy it again"):
        texts(path)
    assert skipping(path)[:2] == ([], {"damaged": 1})


COUNTS = (
    BadRecordCount(reason="null", count=2, example="a.jsonl, line 1, byte 0: 'x'"),
    BadRecordCount(reason="truncated", count=1, example="b.jsonl.gz, line 9, byte 80: ''"),
)


def test_up_to_the_stated_fraction_bad_records_are_let_pass():
    check_fraction(COUNTS, 97, 0.03, "poems")
    check_fraction((), 0, 0.0, "poems")
    with pytest.raises(DataError) as caught:
        check_fraction(COUNTS, 96, 0.03, "poems")
    assert str(caught.value) == (
        "3 of 99 records of poems can't be read, more than max_bad_fraction=0.03: "
        "2 null (such as a.jsonl, line 1, byte 0: 'x'); 1 truncated (such as b.jsonl.gz, line 9, byte 80: ''). "
        "Mend them, or allow more with max_bad_fraction="
    )


ENDS_EARLY: dict[str, bytes] = {
    "a.jsonl.gz": COMPRESS[".gz"](LINES)[:-9],
    "b.jsonl.zst": b"no archive",
    "c.json": b'[{"text": "a"}, {"text": ',
    "d.json": b'[{"text": "a"}] {"text": "b"}',
    "e.csv": b"te\xffxt\na\n",
    "f.csv.bz2": COMPRESS[".bz2"](b"text\na\n")[:-9],
    "g.parquet": b"PAR1",
    "h.ipc": b"",
}


@pytest.mark.parametrize("name", ENDS_EARLY)
def test_where_a_file_can_not_be_read_further_nobody_knows_how_many_records_follow(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(ENDS_EARLY[name])
    with pytest.raises(BadRecordError, match=r"mend or remove it, or leave out what follows, however much it is, with"):
        texts(tmp_path / name)
    bad = BadRecords("skip")
    [file] = input_files(files(tmp_path / name))
    good = list(read_documents(Piece(file=file), "text", bad))
    [count] = bad.counts
    assert (count.count, count.unread_rests) == (1, 1)
    assert count.example.endswith("the rest of the file was not read")
    twice = merge_counts([bad.counts, bad.counts])
    with pytest.raises(DataError, match=r"; 2 of them are the rest of a file, each of nobody knows how many"):
        check_fraction(twice, len(good), 0.01, "poems")


def test_a_document_that_is_a_whole_file_is_one_record(tmp_path: Path):
    (tmp_path / "a.txt.gz").write_bytes(COMPRESS[".gz"](LINES)[:-9])
    [file] = input_files(files(tmp_path / "a.txt.gz"))
    bad = BadRecords("skip")
    assert not list(read_documents(Piece(file=file), "text", bad))
    assert [(each.count, each.unread_rests) for each in bad.counts] == [(1, 0)]


def test_counts_are_summed_over_pieces_with_the_first_example():
    later = BadRecordCount(reason="null", count=5, example="later")
    summed = merge_counts([COUNTS, [later]])
    assert summed == (BadRecordCount(reason="null", count=7, example=COUNTS[0].example), COUNTS[1])
    assert msgspec.json.decode(msgspec.json.encode(summed), type=tuple[BadRecordCount, ...]) == summed


def test_an_unknown_policy_and_what_is_no_fraction_are_refused():
    with pytest.raises(ConfigurationError, match="on_bad_record='ignore' is unknown; known are error, skip"):
        BadRecords("ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="max_bad_fraction=2 is no fraction"):
        check_policy("on_bad_record", "skip", 2)
