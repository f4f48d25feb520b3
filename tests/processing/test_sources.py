"""What a text means as a source or a tokenizer, decided by syntax alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.errors import ConfigurationError
from marin.processing.sources import FileSource, HubSource, files, hf, parse_source, split_suffixes
from marin.processing.tokenize.tokenizers import TokenizerSource, parse_tokenizer


@pytest.mark.parametrize("text", ["roneneldan/TinyStories", "a/b", "HuggingFaceFW/fineweb-edu", "allenai/c4.en"])
def test_one_slash_and_nothing_else_is_a_hub_id(text: str):
    assert parse_source(text) == HubSource(repository=text)


@pytest.mark.parametrize(
    "text",
    [
        "raw/a.jsonl",
        "raw/a.txt.gz",
        "raw/a.parquet",
        "raw/*",
        "raw/part-[0-9]",
        "./raw/poems",
        "../poems",
        "/raw/poems",
        "~/poems",
        "raw/poems/old",
        "poems",
        "raw/",
        "my raw/poems",
        "poems.jsonl",
    ],
)
def test_everything_else_is_a_path(text: str):
    assert parse_source(text) == FileSource(paths=(text,))


def test_a_path_object_is_a_path_even_if_it_looks_like_a_hub_id():
    assert parse_source(Path("raw/poems")) == FileSource(paths=("raw/poems",))


def test_files_and_hf_say_it_outright():
    assert parse_source(files("raw/poems")) == FileSource(paths=("raw/poems",))
    assert parse_source(hf("raw/poems", revision="v2", split="test")).revision == "v2"  # type: ignore[union-attr]


def test_a_list_holds_paths_in_the_order_given():
    assert parse_source(["b/c", "a.jsonl"]) == FileSource(paths=("b/c", "a.jsonl"))


def test_a_url_of_a_file_is_its_path():
    assert parse_source("file:///raw/a.jsonl") == FileSource(paths=("/raw/a.jsonl",))
    assert parse_source("hf://datasets/a/b") == HubSource(repository="a/b")


@pytest.mark.parametrize("url", ["s3://bucket/a.jsonl", "https://host/a.jsonl?x=1", "gs://b/*.parquet", "memory://a"])
def test_any_other_url_is_kept_as_it_is(url: str):
    assert parse_source(url) == FileSource(paths=(url,))


def test_a_url_that_is_no_file_is_refused_with_the_right_way_to_write_it():
    with pytest.raises(ConfigurationError, match="write file:/// and the whole path"):
        parse_source("file://a.jsonl")
    with pytest.raises(ConfigurationError, match=r"written 'organisation/name' or hf\(\.\.\.\)"):
        files("hf://datasets/a/b")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.csv", ("csv", None)),
        ("a.CSV.GZ", ("csv", "gzip")),
        ("a.feather", ("arrow", None)),
        ("a.ipc", ("arrow", None)),
        ("https://host/a.jsonl.zst?sig=b.txt#c.md", ("jsonl", "zstd")),
        ("what?.jsonl", ("jsonl", None)),
    ],
)
def test_suffixes_tell_format_and_compression(path: str, expected: tuple[str | None, str | None]):
    assert split_suffixes(path) == expected


def test_an_unknown_format_is_refused_with_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"format='xml'.* arrow, csv, json, jsonl, parquet, text"):
        files("a", format="xml")  # type: ignore[arg-type]


def test_no_path_at_all_and_an_empty_path_are_refused():
    with pytest.raises(ConfigurationError, match="no path given"):
        files()
    with pytest.raises(ConfigurationError, match="is empty"):
        files("")


def test_a_hub_id_without_an_organisation_is_refused():
    with pytest.raises(ConfigurationError, match="organisation/name"):
        hf("TinyStories")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bytes", "bytes"),
        ("marin-community/marin-tokenizer", "hub"),
        ("gpt2", "hub"),
        ("tokenizer.json", "file"),
        ("mine/tokenizer.json", "file"),
        ("./bytes", "file"),
        ("~/tokenizers/mine", "file"),
        ("/tokenizers/mine", "file"),
        ("tokenizers/mine/v2", "file"),
    ],
)
def test_syntax_tells_what_a_tokenizer_is(text: str, kind: str):
    assert parse_tokenizer(text).kind == kind


@pytest.mark.parametrize("text", ["byte", "Bytes", "btyes", "bytes ", "byets"])
def test_a_slip_for_bytes_is_refused_with_what_was_meant(text: str):
    with pytest.raises(ConfigurationError, match=rf"tokenizer='{text}': did you mean 'bytes'\?"):
        parse_tokenizer(text)


@pytest.mark.parametrize("text", ["byt5", "bert", "t5", "gpt2", "mybytes/tokenizer", "bytes/bytes"])
def test_what_is_not_near_to_bytes_stays_a_hub_id(text: str):
    assert parse_tokenizer(text) == TokenizerSource(kind="hub", location=text)


def test_a_bare_text_is_known_as_a_guess_which_changes_nothing_else():
    assert (parse_source("a/b"), parse_source("a/b").guessed) == (hf("a/b"), True)  # type: ignore[union-attr]
    assert not hf("a/b").guessed
    assert parse_tokenizer("a/b").guessed
    assert repr(parse_source("a/b")) == repr(hf("a/b"))


def test_a_tokenizer_that_is_no_text_is_refused():
    with pytest.raises(ConfigurationError, match="give 'bytes', a path, a hub id"):
        parse_tokenizer(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="give 'bytes'"):
        parse_tokenizer("")
