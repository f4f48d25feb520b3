import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import InvalidPrefixError
from marin.storage.prefix import Prefix, resolve_prefix


def resolve(given: str | None = None, *, cwd: Path = Path("/nowhere/project"), **environ: str) -> Prefix:
    return resolve_prefix(given, environ=environ, cwd=cwd)


def test_what_is_given_wins_over_the_environment_and_that_over_the_default():
    assert resolve("/a", MARIN_PREFIX="/b") == Prefix(location="/a", origin="--prefix")
    assert resolve(MARIN_PREFIX="/b") == Prefix(location="/b", origin="MARIN_PREFIX")
    assert resolve() == Prefix(location="/nowhere/project/marin_store", origin="default ./marin_store")


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("/data/store", "/data/store"),
        ("/data/store/", "/data/store"),
        ("/data//store///", "/data/store"),
        ("//data/store", "/data/store"),
        ("/", "/"),
        ("/data/./old/../store", "/data/store"),
        ("store", "/nowhere/project/store"),
        ("./store", "/nowhere/project/store"),
        ("../store", "/nowhere/store"),
        (".", "/nowhere/project"),
        ("~", "/home/anna"),
        ("~/store/", "/home/anna/store"),
        ("~root/store", f"{pwd.getpwnam('root').pw_dir}/store"),
        ("./~/store", "/nowhere/project/~/store"),
        ("file:///data/store/", "/data/store"),
        ("file://localhost/data/store", "/data/store"),
        ("file:/data/store", "/data/store"),
        ("FILE:////data//store", "/data/store"),
        ("file:///my%20data/%E8%A9%A9", "/my data/詩"),
        ("/my data/詩 100%", "/my data/詩 100%"),
        ("a:b/c", "/nowhere/project/a:b/c"),
    ],
)
def test_one_place_has_one_spelling(text: str, location: str):
    assert resolve(text, HOME="/home/anna").location == location
    assert resolve(MARIN_PREFIX=text, HOME="/home/anna").location == location


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text and ":" not in text))
def test_a_location_is_absolute_and_resolves_to_itself(text: str):
    try:
        first = resolve(f"/nowhere/{text}").location
    except UnicodeEncodeError:  # lone surrogates that no file system can hold
        return
    assert first.startswith("/")
    assert first == "/" or not first.endswith("/")
    assert resolve(first).location == first


@pytest.mark.parametrize("text", ["", " ", "\t\n", "a\0b"])
def test_an_empty_prefix_is_an_error_not_the_default(text: str):
    with pytest.raises(InvalidPrefixError, match=r"--prefix is '.*', which names no folder: give a path such as"):
        resolve(text, MARIN_PREFIX="/b")
    with pytest.raises(InvalidPrefixError, match=r"MARIN_PREFIX is '.*', which names no folder"):
        resolve(MARIN_PREFIX=text)


@pytest.mark.parametrize("text", ["s3://bucket/a", "gs://bucket", "https://host/a", "S3:/bucket/a", "memory://a"])
def test_other_stores_are_not_supported_yet(text: str):
    scheme = text.partition(":")[0]
    with pytest.raises(InvalidPrefixError, match=f"{scheme}://.* is not supported yet; use a local path"):
        resolve(text)


@pytest.mark.parametrize("text", ["file://tmp/a", "file://host//a", "file:a", "file:", "file://"])
def test_a_file_url_of_another_host_or_with_too_few_slashes_is_an_error(text: str):
    with pytest.raises(InvalidPrefixError, match=f"{text}', which is no local file URL: write file:///, or give"):
        resolve(text)


def test_an_unknown_user_is_an_error():
    with pytest.raises(InvalidPrefixError, match=r"no such user: for a folder of this name write './~nobody-knows/a'"):
        resolve("~nobody-knows/a")


def test_a_file_is_no_prefix(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for text in (f"{tmp_path}/file", f"{tmp_path}/file/below/it"):
        with pytest.raises(InvalidPrefixError, match=rf"but {tmp_path}/file is a file, not a folder: choose another"):
            resolve(text)
    (tmp_path / "marin_store").write_text("")
    with pytest.raises(InvalidPrefixError, match="marin_store is a file"):
        resolve(cwd=tmp_path)


def test_a_link_to_nothing_is_no_prefix(tmp_path: Path):
    (tmp_path / "link").symlink_to("/mnt/not-mounted-today")
    with pytest.raises(InvalidPrefixError, match="link is a link to something that is not there"):
        resolve(f"{tmp_path}/link/store")


def test_a_store_in_a_folder_above_is_pointed_out(tmp_path: Path):
    project = tmp_path / "project/experiments"
    project.mkdir(parents=True)
    assert resolve(cwd=project).hint is None
    (tmp_path / "marin_store").mkdir()
    hint = f"{tmp_path}/marin_store exists; to use it, run in {tmp_path} or set MARIN_PREFIX={tmp_path}/marin_store"
    assert resolve(cwd=project) == Prefix(location=f"{project}/marin_store", origin="default ./marin_store", hint=hint)
    assert resolve(str(project / "marin_store"), cwd=project).hint is None
    (project / "marin_store").mkdir()
    assert resolve(cwd=project).hint is None


def test_the_working_folder_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert resolve("store", cwd=Path()).location == f"{os.getcwd()}/store"
