"""The metrics file survives what a crash or a full disk does to it."""

import logging
import os

import pytest

from marin.errors import StorageFullError
from marin.training.metrics import MetricsLog


def line(step):
    return {"step": step, "loss": 1.0 / step}


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b'{"step": 2, "lo\n', b'{"loss": 1.0}\n', b"[]\n"])
def test_a_line_that_a_crash_spoiled_is_left_out_and_named(damage, tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(str(path), last_step=0) as log:
        log.write(line(1))
    with path.open("ab") as file:
        file.write(damage)
    with caplog.at_level(logging.WARNING), MetricsLog(str(path), last_step=5) as log:
        assert log.lines == [line(1)]
        log.write(line(3))
    assert f"{path}, line 2" in caplog.text
    with MetricsLog(str(path), last_step=5) as log:
        assert log.lines == [line(1), line(3)]


def test_lines_after_the_last_step_and_a_torn_last_line_are_dropped_without_a_word(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(str(path), last_step=0) as log:
        log.write(line(1))
        log.write(line(2))
    with path.open("ab") as file:
        file.write(b'{"step": 3')
    with caplog.at_level(logging.WARNING), MetricsLog(str(path), last_step=1) as log:
        assert log.lines == [line(1)]
    assert not caplog.text


def test_a_full_disk_is_told_with_the_path(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(str(path), last_step=0)
    with open("/dev/full", "ab") as full:
        os.dup2(full.fileno(), log._file.fileno())
    with pytest.raises(StorageFullError, match=f"{path}: no room to write"), log:
        log.write(line(1))
