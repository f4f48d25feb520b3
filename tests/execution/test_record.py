"""The record's format: files written today must be read for years, by this Marin and by newer ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import CorruptRecordError, NewerRecordError
from marin.execution.record import SCHEMA, State, data_path, decode_record, encode_record

GOLDEN = Path(__file__).parent / "golden"
FILES = ["record_built.json", "record_built_with_code.json", "record_building.json", "record_failed.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_record_of_schema_1_is_read_and_written_as_it_was(name):
    """Changing these files means that stores of users can't be read any more: raise the schema, and read both."""
    raw = GOLDEN.joinpath(name).read_bytes()
    record = decode_record(raw, name)
    assert encode_record(record) == raw


def test_a_built_record_says_where_its_data_lies():
    record = decode_record(GOLDEN.joinpath("record_built.json").read_bytes(), "golden")
    assert (record.schema, record.state, str(record.id)) == (1, State.BUILT, "checkpoints/poet@2026.07.01")
    assert record.build.result == {"steps": 100, "loss": 3.25}
    assert data_path(record.id.address, record.build) == "checkpoints/poet/2026.07.01"
    assert record.build.deps[0].path == "tokenized/poems/2026.07.01"
    assert record.build.fingerprint.payload["config"]["dict"]["lr"] == {"float": "0.001"}


def test_a_record_that_is_rebuilt_keeps_the_previous_build():
    record = decode_record(GOLDEN.joinpath("record_building.json").read_bytes(), "golden")
    assert record.state is State.BUILDING
    assert data_path(record.id.address, record.build) == "raw/poems/dev/.build-20260701T120000-0011aabb"
    assert record.attempt.lease.owner.pid == 4242


def test_what_a_newer_marin_adds_within_the_schema_is_no_fault():
    content = json.loads(GOLDEN.joinpath("record_built.json").read_text())
    content["build"]["something_new"] = {"a": 1}
    assert decode_record(json.dumps(content).encode(), "golden").state is State.BUILT


def test_a_newer_schema_is_refused_with_the_version_needed():
    content = {"schema": SCHEMA + 1, "whatever": True}
    with pytest.raises(NewerRecordError, match=rf"here has record schema {SCHEMA + 1}, and this Marin reads up to"):
        decode_record(json.dumps(content).encode(), "here")


@given(st.data())
def test_a_torn_record_is_always_noticed(data):
    raw = GOLDEN.joinpath(data.draw(st.sampled_from(FILES))).read_bytes()
    cut = data.draw(st.integers(0, len(raw) - 3))  # the last brace and line end
    with pytest.raises(CorruptRecordError, match="here"):
        decode_record(raw[:cut], "here")


@given(st.binary(max_size=200))
def test_foreign_bytes_are_no_record(raw):
    with pytest.raises((CorruptRecordError, NewerRecordError)):
        decode_record(raw, "here")


@pytest.mark.parametrize("missing", ["build", "attempt"])
def test_a_state_without_what_it_speaks_of_is_corrupt(missing):
    name = "record_built.json" if missing == "build" else "record_failed.json"
    content = json.loads(GOLDEN.joinpath(name).read_text())
    content[missing] = None
    with pytest.raises(CorruptRecordError, match=f"without an? {missing}"):
        decode_record(json.dumps(content).encode(), "here")


def test_a_record_from_before_code_was_recorded_says_that_it_was_not():
    assert decode_record(GOLDEN.joinpath("record_built.json").read_bytes(), "golden").build.code is None


def test_a_record_names_each_definition_of_the_code_that_it_was_built_with():
    code = decode_record(GOLDEN.joinpath("record_built_with_code.json").read_bytes(), "golden").build.code
    assert code.modules["my_project.train"].definitions["WARMUP"] == "constant:fedcba9876543210"
