import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import InvalidNameError, InvalidVersionError
from marin.execution.identity import (
    ArtifactId,
    artifact_id,
    checked_name,
    checked_version,
    is_mutable,
    parse_artifact_id,
    version_order,
)


@pytest.mark.parametrize("name", ["poems", "tokenized/poems", "a/b/c", "A-1/b_2/c.3", "x" * 200, "my-dev-set/raw"])
def test_sound_names_are_taken_as_they_are(name):
    assert checked_name(name) == name


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        ("/poems", "empty segment"),
        ("poems/", "empty segment"),
        ("a//b", "empty segment"),
        ("..", "begins with a dot"),
        ("a/../b", "begins with a dot"),
        (".hidden", "begins with a dot"),
        ("gs://bucket/poems", "scheme"),
        ("pöems", "'ö'"),
        ("my poems", "' '"),
        ("a\\b", "character"),
        ("a\nb", "character"),
        ("a\0b", "character"),
        ("poems@dev", "'@'"),
        ("dev", "version='dev'"),
        ("poems/2026.07.01", "version='2026.07.01'"),
        ("poems/2026.07.01.2/x", "version='2026.07.01.2'"),
        ("x" * 201, "201 bytes"),
        (None, "NoneType"),
        (7, "int"),
    ],
)
def test_a_bad_name_is_refused_with_its_fault_and_an_example(name, fault):
    with pytest.raises(InvalidNameError) as caught:
        checked_name(name)
    assert fault in str(caught.value)


@pytest.mark.parametrize("version", ["2026.07.01", "2026.07.01.1", "2026.07.01.12", "dev", "anna-dev", "2024.02.29"])
def test_sound_versions_are_taken_as_they_are(version):
    assert checked_version(version, "poems") == version


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        ("2026-06-28", "did you mean 2026.06.28?"),
        ("2026.6.28", "did you mean 2026.06.28?"),
        ("v2026.06.28", "did you mean 2026.06.28?"),
        ("20260628", "did you mean 2026.06.28?"),
        ("2026_06_28-3", "did you mean 2026.06.28.3?"),
        ("2026.02.30", "no such day as 2026.02.30"),
        ("2026.13.01", "no such day"),
        ("2026.07.01.0", "'2026.06.28'"),
        ("1.0", "'2026.06.28'"),
        ("latest", "'2026.06.28'"),
        ("", "'2026.06.28'"),
        ("-dev", ""),
        ("a/b-dev", ""),
        (".x-dev", ""),
        ("２026.07.01", ""),
        ("2026.07.01\n", "did you mean 2026.07.01?"),
        (2026.07, "float"),
    ],
)
def test_a_bad_version_is_refused_with_a_valid_example(version, hint):
    with pytest.raises(InvalidVersionError) as caught:
        checked_version(version, "poems")
    assert hint in str(caught.value)
    assert "poems" in str(caught.value)


def test_only_dev_versions_are_mutable():
    assert [is_mutable(version) for version in ("dev", "anna-dev", "2026.07.01")] == [True, True, False]


def test_versions_sort_by_date_and_number():
    versions = ["2026.07.01.10", "2026.07.02", "2026.07.01.9", "2026.07.01", "2025.12.31.99"]
    assert sorted(versions, key=version_order) == [
        "2025.12.31.99",
        "2026.07.01",
        "2026.07.01.9",
        "2026.07.01.10",
        "2026.07.02",
    ]


SEGMENT = st.from_regex(r"[a-z0-9_][a-z0-9._-]{0,8}", fullmatch=True).filter(lambda s: s != "dev" and s.count(".") < 2)
VERSION = st.one_of(st.dates().map(lambda day: f"{day:%Y.%m.%d}"), st.just("dev"), SEGMENT.map(lambda s: f"{s}-dev"))


@given(
    st.lists(SEGMENT, min_size=1, max_size=4).map("/".join),
    VERSION.filter(lambda v: len(v.split(".")[0]) >= 4 or v.endswith("dev")),
)
def test_an_id_is_read_back_from_its_text(name, version):
    one = artifact_id(name, version)
    assert parse_artifact_id(str(one)) == one


@given(SEGMENT, SEGMENT, st.sampled_from(["dev", "2026.07.01"]))
def test_different_ids_have_different_addresses(one, other, version):
    assert (ArtifactId(one, version).address == ArtifactId(other, version).address) == (one == other)


def test_an_id_without_version_says_how_to_write_one():
    with pytest.raises(InvalidNameError, match=r"poems@2026\.07\.01"):
        parse_artifact_id("poems")
