"""Logs of attempts: how a long one ends, and how many are kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from marin.errors import ConfigurationError, RunError
from marin.execution import RunOptions, remote
from marin.execution.logs import KEPT_LOGS, log_parts, read_log_end, remove_old_logs
from marin.execution.runner import run
from tests.execution.pipelines import poems


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "20260701T100000-00.log"


def test_a_log_that_is_not_there_has_no_parts_and_no_end(log: Path):
    assert log_parts(str(log)) == []
    assert read_log_end(str(log), 0, 100) == ""


def test_the_end_of_a_short_log_begins_where_this_attempt_began(log: Path):
    log.write_text("before\nafter\n")
    assert read_log_end(str(log), 7, 100) == "after\n"
    assert read_log_end(str(log), 0, 4) == "ter\n"


def test_the_end_of_a_long_log_reaches_into_the_part_before(log: Path):
    Path(f"{log}.0").write_text("beginning\n")
    log.write_text("end\n")
    assert read_log_end(str(log), 500, 8) == "ing\nend\n"
    Path(f"{log}.1").write_text("middle\n")
    assert log_parts(str(log)) == [f"{log}.0", f"{log}.1", str(log)]
    assert read_log_end(str(log), 500, 100) == "middle\nend\n"


def test_what_is_no_text_is_told_as_far_as_it_is(log: Path):
    log.write_bytes(b"\xff\xfe rose")
    assert read_log_end(str(log), 0, 100).endswith(" rose")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_logs_of_the_last_attempts_are_kept(tmp_path: Path):
    logs = [f"20260701T10{number:04}-ab.log" for number in range(KEPT_LOGS + 5)]
    for name in logs:
        (tmp_path / name).touch()
        (tmp_path / f"{name}.0").touch()
    (tmp_path / "notes of mine.txt").touch()
    remove_old_logs(str(tmp_path), keep=[logs[0]])
    kept = [logs[0], *logs[-KEPT_LOGS:]]
    assert names(tmp_path) == sorted([*kept, *(f"{name}.0" for name in kept), "notes of mine.txt"])


def test_logs_that_can_not_be_listed_harm_nobody(tmp_path: Path):
    remove_old_logs(str(tmp_path / "gone"), keep=[])


def print_much(config):
    for number in range(20_000):
        print(f"line {number}")
    raise ValueError("no rhyme")


def test_a_step_that_prints_much_keeps_to_the_limit_and_its_error_is_told(options):
    with pytest.raises(RunError, match="no rhyme"):
        run(poems(run=remote(print_much)), options=replace(options, log_bytes=30_000))
    folder = Path(options.prefix, "raw/poems/2026.07.01/.logs")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 30_000
    assert any("ValueError: no rhyme" in path.read_text() for path in folder.glob("*.log"))


def die_after_much(config):
    print("rose " * 100_000)
    print("\x1b[2J\x07last words", flush=True)
    os._exit(3)


def test_an_error_quotes_no_endless_line_and_nothing_that_a_terminal_obeys(options):
    with pytest.raises(RunError, match=r"\?\[2J\?last words") as failed:
        run(poems(run=remote(die_after_much)), options=options)
    assert len(str(failed.value)) < 3000
    assert "\x1b" not in str(failed.value)


def test_a_limit_that_would_hold_no_error_is_refused():
    with pytest.raises(ConfigurationError, match="log_bytes is 10: a log needs 4,096"):
        RunOptions(log_bytes=10)
