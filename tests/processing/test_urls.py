"""URLs, names and digests that a download can't work with: told when the step is described, with what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import ConfigurationError
from marin.processing.http_origin import HttpOrigin
from marin.processing.raw_download import remote_files
from marin.processing.retrying import PassingFault
from marin.processing.urls import checked_url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (None, "None is not a URL of http://"),
        (7, "7 is not a URL of"),
        (b"https://host/a", "b'https://host/a' is not a URL of"),
        (Path("a"), "is not a URL of .*; files of this machine need no download"),
        ("", "'' is not a URL of"),
        ("https:/host/a", "is not a URL of"),
        ("HTTPS://host/a", "write https:// in lower case"),
        ("file:///a", "is not a URL of"),
        ("https://host/a b.txt", r"must be escaped: write 'https://host/a%20b\.txt'"),
        ("https://host/\u00e4%20.txt?q=\u00e4#f", r"write 'https://host/%C3%A4%20\.txt\?q=%C3%A4#f'"),
        ("https://host/\ud800", "it has characters that no server can be sent"),
        ("https://host/a\n", "it has a line end, a tab or a space at an end: remove it"),
        ("https://host/a\nb", "it has a line end"),
        ("https://ho\tst/a", "it has a line end"),
        (" https://host/a", "is not a URL of"),
        ("https://host/a ", "or a space at an end: remove it"),
        ("https://host/a\0", "it has a line end"),
        ("https://h\u00f6st.de:81/a", r"its host is not ASCII: write 'https://xn--hst-sna\.de:81/a'"),
        ("https://h\u00f6st.de/\u00e4 b", r"write 'https://xn--hst-sna\.de/%C3%A4%20b'"),
        ("https://ho st/a", "'ho st' can't be a host: correct it"),
        ("https://a..b/x", r"'a\.\.b' can't be a host"),
        (f"https://{'a' * 64}/x", "can't be a host"),
        ("https://" + "\u00e4" * 64 + "/x", "can't be a host"),
        (f"https://{'a.' * 200}/x", "can't be a host"),
        ("https://ho%20st/x", "can't be a host"),
        ("https://host:port/a", "Port could not be cast to integer .*: correct its host and port"),
        ("https://host:99999/a", "Port out of range 0-65535: correct its host and port"),
        ("https://host:0/a", "port 0 is none: correct it"),
        ("https://[::1/a", "Invalid IPv6 URL: correct its host and port"),
        ("https:///a", "it names no host: write https://host/path"),
        ("https://:80/a", "it names no host"),
        ("https://?a", "it names no host"),
        ("s3:///a", "it names no bucket: write s3://bucket/key"),
        ("s3://[bucket/a", "Invalid IPv6 URL: correct its bucket"),
        ("gs://bucket/a\n", "it has characters that can't be shown"),
    ],
)
def test_a_url_that_can_not_be_asked_is_told_with_what_to_write(url: Any, message: str):
    for urls in (url, [url], {"name.txt": url}, ["https://host/first", url]):
        if urls is url and not isinstance(url, str):
            continue
        with pytest.raises(ConfigurationError, match=rf"^raw/x: .*{message}"):
            remote_files("raw/x", urls, None)


@pytest.mark.parametrize(
    "url",
    [
        "https://host/a%20b.txt?x=%zz&y=1+2#part",
        "http://127.0.0.1:8080/a",
        "http://[::1]:8080/a",
        "https://under_score.host./a;b=c,(d)/e~'f'",
        "https://xn--hst-sna.de/a",
        "s3://bucket/a key of \u00e4 store.txt",
        "gs://bucket/a",
    ],
)
def test_a_url_that_can_be_asked_stays_as_it_is(url: str):
    assert checked_url("raw/x", url) == url


@given(st.text(alphabet="ab.:/?#@[]%\u00e4\u00df \n\t\\\ud800\u2100\uff0e0") | st.text(max_size=20))
def test_what_is_let_through_is_never_a_surprise_to_the_library(text: str):
    url = f"http://127.0.0.1:1/{text}"
    try:
        checked_url("raw/x", url)
    except ConfigurationError:
        return
    with pytest.raises(PassingFault, match="Connection refused"), HttpOrigin(url=url, name="a").open(0, None):
        pass


@given(st.text(alphabet="ab.:[]%\u00e4\u00df \n\\\ud800\u2100\uff0e0-_", max_size=8) | st.text(max_size=8))
def test_what_is_wrong_with_a_host_is_told_in_one_line(text: str):
    told = ""
    try:
        checked_url("raw/x", f"https://{text}/a")
    except ConfigurationError as fault:
        told = str(fault)
    assert "\n" not in told


@pytest.mark.parametrize(
    "urls",
    [None, 7, b"https://host/a", {"https://host/a"}, iter(["https://host/a"]), Path("a"), object(), bytearray(b"a")],
)
def test_urls_of_another_type_are_told(urls: Any):
    with pytest.raises(ConfigurationError, match=r"^raw/x: urls=.* is neither a URL, nor a list of them, nor \{name:"):
        remote_files("raw/x", urls, None)


@pytest.mark.parametrize(
    "name", ["", 7, None, b"a", "a\nb", "a\0", "x" * 256, "\u00e4" * 128, "a//b", "/a", "a/", "\ud800"]
)
def test_a_name_that_no_file_can_have_is_told(name: Any):
    with pytest.raises(ConfigurationError, match=r"^raw/x: https://host/a: .*; give one: urls="):
        remote_files("raw/x", {name: "https://host/a"}, None)


@pytest.mark.parametrize("last", ["a%0Ab", "%00", f"{'x' * 256}", "%2e%2e"])
def test_nor_can_it_come_from_the_url(last: str):
    with pytest.raises(ConfigurationError, match=r"is no name for a file; give one: urls="):
        remote_files("raw/x", f"https://host/{last}", None)


@pytest.mark.parametrize(
    "urls",
    [
        ["https://one/a.gz", "https://two/b/a.gz"],
        ["https://one/a.gz", "https://one/a.gz?x=1"],
        ["https://one/a%2Egz", "https://one/a.gz"],
        ["https://one/a.gz", "https://one/a.gz"],
    ],
)
def test_two_of_one_name_are_told(urls: list[str]):
    with pytest.raises(ConfigurationError, match=r"would both be called 'a\.gz': give names: urls="):
        remote_files("raw/x", urls, None)


@pytest.mark.parametrize(
    ("digest", "message"),
    [
        (7, "sha256=7 is neither a text of 64 digits nor"),
        (b"a" * 64, "is neither a text"),
        (["a" * 64], "is neither a text"),
        ("", "is '', not 64 hexadecimal digits"),
        ("g" * 64, "not 64 hexadecimal digits"),
        ("a" * 63, "not 64 hexadecimal digits"),
        ("a" * 64 + "\n", f"not 64 hexadecimal digits; write '{'a' * 64}'"),
        ("sha256:" + "a" * 64, f"not 64 hexadecimal digits; write '{'a' * 64}'"),
        ("a" * 32, "it may be an md5: tell it by what 'sha256sum' prints"),
        ("a" * 40, "it may be a sha1"),
        ({"https://host/a": None}, "the sha256 of https://host/a is None, not 64"),
        ({"https://host/a": 7}, "the sha256 of https://host/a is 7, not 64"),
        ({7: "a" * 64}, "sha256= has 7, which is not among the urls"),
        ({None: "a" * 64}, "sha256= has None, which is not among the urls"),
    ],
)
def test_a_digest_that_is_none_is_told(digest: Any, message: str):
    with pytest.raises(ConfigurationError, match=rf"^raw/x: .*{message}"):
        remote_files("raw/x", "https://host/a", digest)


def test_a_digest_in_upper_case_is_the_same():
    [file] = remote_files("raw/x", "https://host/a", "AB" * 32)
    assert file.sha256 == "ab" * 32
