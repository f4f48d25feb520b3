from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import InvalidResourcesError
from marin.executors.quantities import parse_duration, parse_size, show_duration, show_size


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (1, 1),
        ("7B", 7),
        ("16GB", 16_000_000_000),
        ("16 GB", 16_000_000_000),
        ("512MiB", 512 * 2**20),
        ("1.5TB", 1_500_000_000_000),
        ("2kB", 2000),
        ("2KB", 2000),
        ("9007199254740993B", 9007199254740993),  # more than a float can tell apart
    ],
)
def test_an_amount_of_bytes_is_read(text: Any, amount: int):
    assert parse_size(text, "memory") == amount


@pytest.mark.parametrize(
    ("text", "meant"), [("16G", "16GB"), ("16gb", "16GB"), ("4g", "4GB"), ("16Gi", "16GiB"), ("3 mib", "3MiB")]
)
def test_a_near_miss_of_bytes_says_what_was_meant(text: str, meant: str):
    with pytest.raises(InvalidResourcesError, match=f"did you mean '{meant}'"):
        parse_size(text, "memory")


@pytest.mark.parametrize("text", ["", "GB", "16", "-1GB", "1e9B", "0GB", 0, -5, 2**63, True, None, 1.5, "9" * 5000])
def test_what_is_no_amount_of_bytes_is_refused_by_its_name(text: Any):
    with pytest.raises(InvalidResourcesError, match=r"memory=.*give bytes, or text such as '16GB'"):
        parse_size(text, "memory")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(2, 2.0), (0.5, 0.5), ("90s", 90), ("30min", 1800), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1h30m", 5400)],
)
def test_a_time_is_read(text: Any, seconds: float):
    assert parse_duration(text, "timeout") == seconds


@pytest.mark.parametrize(("text", "meant"), [("2hours", "2h"), ("2H", "2h"), ("1 day", "1d")])
def test_a_near_miss_of_a_time_says_what_was_meant(text: str, meant: str):
    with pytest.raises(InvalidResourcesError, match=f"did you mean '{meant}'"):
        parse_duration(text, "timeout")


@pytest.mark.parametrize("text", ["", "2", "h", 0, -1, math.nan, math.inf, 10**400, True, None, "0s", "2h and 3m"])
def test_what_is_no_time_is_refused_by_its_name(text: Any):
    with pytest.raises(InvalidResourcesError, match=r"timeout=.*give seconds, or text such as '90s'"):
        parse_duration(text, "timeout")


@given(st.text())
def test_any_text_is_an_amount_or_a_clear_error(text: str):
    for parse in (parse_size, parse_duration):
        try:
            said = repr(text) if parse(text, "disk") > 0 else ""
        except InvalidResourcesError as fault:
            said = str(fault)
        assert repr(text) in said


@given(st.integers(1, 10**7))
def test_a_shown_time_is_read_as_the_same(seconds: int):
    assert parse_duration(show_duration(seconds), "timeout") == seconds


@given(st.integers(1, 2**63 - 1))
def test_a_shown_amount_is_read_as_nearly_the_same(amount: int):
    assert parse_size(show_size(amount).replace(",", ""), "disk") == pytest.approx(amount, rel=0.01)


def test_milliseconds_are_not_taken_for_minutes():
    with pytest.raises(InvalidResourcesError) as refused:
        parse_duration("1ms", "time")
    assert "did you mean" not in str(refused.value)


def test_what_is_nearly_a_megabyte_is_shown_as_one():
    assert show_size(999_500) in ("1 MB", "0.999 MB")
    assert [show_size(amount * 10**14) for amount in (9_990, 9_997, 20_000)] == ["999 PB", "1,000 PB", "2,000 PB"]
