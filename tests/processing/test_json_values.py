"""JSON that arrives in blocks is what it is when it arrives at once."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.processing import json_values
from marin.processing.json_values import JsonValue
from marin.processing.records import Unfit

characters = st.characters(exclude_categories=["Cs"])
texts = st.one_of(
    st.text(characters, max_size=60),
    st.text(st.sampled_from('"\\/\n\0😀é東{[,]}:'), max_size=60),
    st.text(characters, max_size=8).map("\0{}".format),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
)


@pytest.fixture(autouse=True)
def short_is_long(monkeypatch: pytest.MonkeyPatch):
    """Strings of more than eight bytes are kept aside: what is rare in data is then common in these tests."""
    monkeypatch.setattr(json_values, "LONG", 8)


def fed(data: bytes, sizes: list[int]) -> Any:
    value, rest = JsonValue(), b""
    while data:
        size = sizes.pop() if sizes else len(data)
        rest += data[:size]
        data = data[size:]
        rest = rest[value.feed(rest) :]
    return value.finish(rest)


@given(values, st.booleans(), st.lists(st.integers(1, 40)))
def test_a_value_that_arrives_in_blocks_is_the_value(value: Any, ascii_only: bool, sizes: list[int]):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert fed(data, sizes) == value


@given(st.binary(max_size=60), st.lists(st.integers(1, 40)))
def test_what_is_no_json_is_refused_in_blocks_as_well(data: bytes, sizes: list[int]):
    data = b'{"text": "' + data + b'"}'
    try:
        expected = orjson.loads(data)
    except orjson.JSONDecodeError:
        with pytest.raises(Unfit):
            fed(data, sizes)
    else:
        assert fed(data, sizes) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"a" * 20 + b"\\ud800" + b"b" * 90, "lone surrogate"),
        (b"a" * 20 + b"\\udc00" + b"b" * 90, "lone surrogate"),
        (b"a" * 20 + b"\xff" + b"b" * 90, "invalid UTF-8"),
        (b"a" * 20 + b"\n" + b"b" * 90, "broken JSON"),
        (b"a" * 20 + b"\\x" + b"b" * 90, "broken JSON"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 200])
def test_the_reason_is_told_of_a_fault_within_a_long_string(body: bytes, reason: str, size: int):
    with pytest.raises(Unfit) as caught:
        fed(b'{"text": "' + body + b'"}', [size] * 200)
    assert caught.value.reason == reason


@given(st.lists(values), st.lists(st.integers(1, 40)), st.sampled_from([None, 2]))
def test_the_elements_of_an_array_are_cut_where_they_end(elements: list[Any], sizes: list[int], indent: int | None):
    data, rest, found = json.dumps(elements, indent=indent).encode()[1:], b"", list[Any]()
    value = JsonValue(in_array=True)
    while data:
        size = sizes.pop() if sizes else len(data)
        block, data, at = rest + data[:size], data[size:], 0
        while at < len(block):
            at = value.feed(block, at)
            if not value.ended_by:
                break
            if elements:
                found.append(value.finish())
            value = JsonValue(in_array=True)
        rest = block[at:]
    assert found == elements
