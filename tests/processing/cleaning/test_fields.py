"""Fields that are kept beside a text become text, exactly."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import BadRecordError
from marin.processing import json_records
from marin.processing.cleaning.fields import field_text
from tests.processing.cleaning.small import normalized, rows

LARGE = ["18446744073709551615", "18446744073709551616", "-9223372036854775809", str(10**25), "9" * 300]
KEPT = [
    *LARGE,
    *(f"[1,{number}]" for number in LARGE),
    *(f'{{"a":{{"b":{number}}}}}' for number in LARGE),
    "1e+22",
    "[1e+22,18446744073709551616]",
    "0.1",
    "true",
    '{"a":1,"b":[null]}',
]


def kept(path: Path) -> list[str | None]:
    out = path.parent / f"{path.name}.out"
    normalized(out, path, keep=(("k", "k"),), deduplicate=False)
    return [row["k"] for row in rows(out)]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
def test_numbers_are_kept_as_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, long: bool):
    if long:
        monkeypatch.setattr(json_records, "LONG_LINE", 0)
    records = [f'{{"text": "a", "k": {each}}}' for each in KEPT]
    if long:  # of more than a block, so that it is decoded as it arrives
        records.append(json.dumps({"text": "b" * (3 << 20), "k": 2**70}))
    data = (f"[{','.join(records)}]" if name == "a.json" else "\n".join(records)).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert kept(tmp_path / name) == [*KEPT, *([str(2**70)] if long else [])]


def test_values_of_different_types_are_all_text(tmp_path: Path):
    values = ["x", 1, 1.5, None, [1], {"a": "é"}, False]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": "a", "k": value}) + "\n" for value in values))
    assert kept(path) == ["x", "1", "1.5", None, "[1]", '{"a":"é"}', "false"]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([math.nan, math.inf, 0.1, 1e300]), ["NaN", "Infinity", "0.1", "1e+300"]),
        (pa.array([[-math.inf, 1.0]]), ["[-Infinity,1.0]"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([{"a": math.nan, "b": 10**18}]), ['{"a":NaN,"b":1000000000000000000}']),
    ],
)
def test_what_a_column_has_is_kept(tmp_path: Path, column: pa.Array, expected: list[str]):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"] * len(column), "k": column}), path)
    assert kept(path) == expected


@pytest.mark.parametrize("column", [pa.array([b"a"]), pa.array([[b"a"]]), pa.array([{"a": b"a"}])])
def test_bytes_are_refused(tmp_path: Path, column: pa.Array):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a"], "k": column}), path)
    with pytest.raises(BadRecordError, match=r"row 1: wrong type: expected what JSON has in 'k', not bytes: convert"):
        kept(path)


@pytest.mark.parametrize("inner", ["1", "18446744073709551616"])
def test_deep_nesting_is_kept_or_refused_with_its_place(tmp_path: Path, inner: str):
    path = tmp_path / "a.jsonl"
    for depth in (200, 400):
        path.write_text(f'{{"text": "a", "k": {"[" * depth}{inner}{"]" * depth}}}')
        assert kept(path) == ["[" * depth + inner + "]" * depth]
    path.write_text(f'{{"text": "a", "k": {"[" * 5000}{"]" * 5000}}}')
    with pytest.raises(BadRecordError, match=r"a\.jsonl, line 1, byte 0: broken JSON"):
        kept(path)


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_what_is_no_text_is_read_back_from_its_json(value: Any):
    text = field_text("k", value)
    if isinstance(value, str) or value is None:
        assert text == value
    else:
        assert text is not None
        assert json.loads(text) == value
