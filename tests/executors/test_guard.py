"""The log that a guard writes: bounded, whatever is printed, and readable."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.executors.guard import BoundedLog


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "poems.log"


def written(path: Path, *printed: bytes, limit: int = 1 << 20) -> str:
    log = BoundedLog(str(path), limit)
    for text in printed:
        log.write(text)
    log.close()
    return path.read_text()


def test_what_is_printed_is_there_at_once(path: Path):
    log = BoundedLog(str(path), 1 << 20)
    log.write(b"half a li")
    assert path.read_bytes() == b"half a li"
    log.close()


def test_a_bar_that_is_redrawn_is_kept_as_it_was_in_the_end(path: Path):
    bar = [b"\r%3d%%|#" % percent for percent in range(101)]
    assert written(path, b"begin\n", *bar, b"\nend\n") == "begin\n100%|#\nend\n"


def test_it_does_not_matter_on_which_side_of_the_bar_the_return_is(path: Path):
    assert written(path, *[b"%d%%\r" % percent for percent in range(101)], b"done\n") == "done\n"


def test_a_bar_that_goes_on_for_long_is_shown_on_the_way(path: Path):
    clock = Clock()
    log = BoundedLog(str(path), 1 << 20, clock=clock)
    assert log.due_in() == float("inf")
    for second in range(12):
        clock.now = float(second)
        log.write(b"\rpoem %d" % second)
        log.snapshot()
    assert path.read_text() == "poem 5\npoem 11\n"
    log.write(b"\rpoem 12")
    assert log.due_in() == 5
    log.close()
    assert path.read_text() == "poem 5\npoem 11\npoem 12"


def test_a_bar_behind_text_that_is_there_begins_a_new_line(path: Path):
    assert written(path, b"loading: ", b"\r1%", b"\r2%", b"\nend") == "loading: \n2%\nend"


def test_line_ends_of_windows_are_no_redrawing(path: Path):
    written(path, b"one\r\ntwo\r", b"\nthree\r\r\n")
    assert path.read_bytes() == b"one\r\ntwo\r\nthree\r\r\n"


def test_an_endless_line_is_not_held_in_memory(path: Path):
    log = BoundedLog(str(path), 10 << 20)
    log.write(b"\r")
    for _ in range(10):
        log.write(b"x" * (1 << 16))
    assert path.stat().st_size > 9 << 16
    log.close()


def test_a_long_log_keeps_its_beginning_and_its_end(path: Path):
    lines = [b"line %05d\n" % number for number in range(10_000)]
    log = BoundedLog(str(path), 30_000)
    for line in lines:
        log.write(line)
    log.close()
    parts = [Path(f"{path}.0"), Path(f"{path}.1"), path]
    assert sum(part.stat().st_size for part in parts) <= 30_000
    assert parts[0].read_bytes().startswith(b"line 00000\nline 00001\n")
    assert path.read_bytes().endswith(b"line 09998\nline 09999\n")
    assert (
        "this log is long: what came before is in poems.log.1, and its beginning is in poems.log.0"
        in (path.read_text().splitlines()[0])
    )
    for part in parts:
        assert all(line.startswith(("line ", "marin: ")) for line in part.read_text().splitlines())
    assert sorted(os.listdir(path.parent)) == ["poems.log", "poems.log.0", "poems.log.1"]


def test_nothing_is_lost_between_the_last_two_parts(path: Path):
    log = BoundedLog(str(path), 30_000)
    for number in range(10_000):
        log.write(b"line %05d\n" % number)
    log.close()
    kept = [line for part in (f"{path}.1", path) for line in Path(part).read_text().splitlines() if "marin" not in line]
    first = int(kept[0].split()[1])
    assert kept == [f"line {number:05}" for number in range(first, 10_000)]


@given(printed=st.lists(st.binary(max_size=300), max_size=50), limit=st.integers(1, 2000))
def test_no_output_takes_more_than_the_limit(
    printed: list[bytes], limit: int, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.mktemp("log") / "log"
    log = BoundedLog(str(path), limit)
    for text in printed:
        log.write(text)
    log.close(b"note\n")
    assert sum(file.stat().st_size for file in path.parent.iterdir()) <= max(limit, 3)


@given(printed=st.lists(st.binary(max_size=50).map(lambda text: text.replace(b"\r", b"")), max_size=50))
def test_what_has_no_returns_is_written_as_it_is(printed: list[bytes], tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("log") / "log"
    log = BoundedLog(str(path), 1 << 20)
    for text in printed:
        log.write(text)
    log.close()
    assert path.read_bytes() == b"".join(printed)


@given(text=st.text(alphabet="ab\r\n", max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_what_a_terminal_would_show_does_not_depend_on_how_it_was_printed(
    text: str, cuts: list[int], tmp_path_factory: pytest.TempPathFactory
):
    """But for lines of which a part was in the log before they were rewritten: that part stays."""
    path = tmp_path_factory.mktemp("log") / "log"
    log = BoundedLog(str(path), 1 << 20)
    begin = 0
    for cut in sorted({*cuts, len(text)}):
        log.write(text[begin:cut].encode())
        begin = max(begin, cut)
    log.close()
    shown = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    kept = [line.rstrip("\r") for line in path.read_bytes().decode().split("\n")]
    remaining = iter(kept)
    assert all(line in remaining for line in shown if line), (shown, kept)


def test_a_full_disk_costs_lines_and_says_so_when_there_is_room_again(path: Path):
    log = BoundedLog(str(path), 1 << 20)
    log.write(b"before\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7, hard))
    try:
        for number in range(3):
            log.write(b"lost %d\n" % number)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write(b"after\n")
    log.close()
    told = "marin: 21 bytes of output found no room on the disk; they ended with:"
    assert path.read_text() == f"before\n\n{told}\nlost 0\nlost 1\nlost 2\nafter\n"


def test_a_folder_that_was_removed_stops_nobody(path: Path):
    log = BoundedLog(str(path), 300)
    path.unlink()
    path.parent.rmdir()
    for _ in range(100):
        log.write(b"a line of a poem\n")
    log.close()
