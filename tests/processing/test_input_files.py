"""Which files a source means, and in which order."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin.errors import BadRecordError, ConfigurationError, DataError
from marin.processing.bad_records import BadRecords
from marin.processing.documents import read_documents
from marin.processing.input_files import file_sha256, input_files
from marin.processing.pieces import Piece
from marin.processing.sources import files
from tests.processing.reading import LINES, jsonl, texts


def test_any_file_is_text_if_the_author_says_so(tmp_path: Path):
    (tmp_path / "a.py").write_text("import this\n")
    assert texts(tmp_path / "*.py", format="text") == ["import this\n"]
    with pytest.raises(ConfigurationError, match=r"a\.py: its suffix names no format .* format='text'"):
        texts(tmp_path / "*.py")


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
    with pytest.raises(BadRecordError, match=r"two\\nlines\.jsonl', line 1, byte 0: broken JSON"):
        texts(path)


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    [file] = input_files(files(path))
    path.unlink()
    with pytest.raises(DataError, match=r"a\.jsonl is there no more: run again"):
        list(read_documents(Piece(file=file), "text", BadRecords()))


def test_a_dangling_link_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(DataError, match=r"a\.jsonl is a link to a file that is not there"):
        input_files(files(tmp_path))
