"""The metrics file survives what a crash or a full disk does to it."""

import json
import logging
import math
import os
import re
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.errors import StorageFullError
from marin.training.metrics import MetricsLog, step_row, validation_row


@dataclass
class Evaluated:
    loss: float
    bits_per_byte: float | None
    tokens: int = 10


def line(step):
    return {"step": step, "loss": 1.0 / step}


def read(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b'{"step": 2, "lo\n', b'{"loss": 1.0}\n', b"[]\n", b'"\xff"\n'])
def test_a_line_that_a_crash_spoiled_is_left_out_and_named(damage, tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(str(path), last_step=0) as log:
        log.write(line(1))
    with path.open("ab") as file:
        file.write(damage)
    with caplog.at_level(logging.WARNING), MetricsLog(str(path), last_step=5) as log:
        assert log.notes.last_step_row == line(1)
        log.write(line(3))
    assert f"{path}, line 2" in caplog.text
    assert read(path) == [line(1), line(3)]


def test_a_spoiled_line_among_good_ones_costs_only_itself(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1,"loss":1.0}\n\0\0\n{"step":2,"loss":0.5}\n{"step":3,"loss":0.1}\n')
    with MetricsLog(str(path), last_step=2) as log:
        assert log.notes.last_step_row == line(2)
    assert read(path) == [line(1), line(2)]
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_lines_after_the_last_step_and_a_torn_last_line_are_dropped_without_a_word(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(str(path), last_step=0) as log:
        log.write(line(1))
        log.write(line(2))
    with path.open("ab") as file:
        file.write(b'{"step": 3')
    with caplog.at_level(logging.WARNING), MetricsLog(str(path), last_step=1) as log:
        assert log.notes.last_step_row == line(1)
    assert read(path) == [line(1)]
    assert not caplog.text


def test_what_stays_is_not_written_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss":   1.0}\n{"step":2}\n')
    before = path.stat().st_ino
    with MetricsLog(str(path), last_step=1) as log:
        log.write(line(2))
    assert path.stat().st_ino == before
    assert path.read_bytes() == b'{"step": 1, "loss":   1.0}\n{"step":2,"loss":0.5}\n'


def test_a_long_file_is_gone_through_in_little_memory(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as file:
        file.writelines(f'{{"step":{step},"loss":1.5,"learning_rate":0.001}}\n' for step in range(1, 50_001))
    tracemalloc.start()
    with MetricsLog(str(path), last_step=40_000) as log:
        for step in range(40_001, 60_001):
            log.write(line(step))
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert len(read(path)) == 60_000


def test_the_first_and_the_last_validation_are_known_also_after_a_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(str(path), last_step=0) as log:
        for step in (0, 10, 20, 30):
            log.write(validation_row(step, Evaluated(3.0 - step / 100, 1.0), {}))
    with MetricsLog(str(path), last_step=20) as log:
        assert log.notes.validation(at_step=0)["validation_loss"] == 3.0
        assert log.notes.validation(at_step=20)["validation_loss"] == 2.8
        assert log.notes.validation(at_step=30) is None
        log.write(validation_row(30, Evaluated(2.5, 1.0), {}))
        assert log.notes.validation(at_step=30)["validation_loss"] == 2.5


def test_each_component_of_a_validation_has_keys_of_its_own_and_what_is_not_known_is_absent():
    components = {"chat": Evaluated(1.0, None), "tokenized/poems": Evaluated(2.0, 0.9)}
    assert validation_row(7, Evaluated(1.5, None, tokens=20), components) == {
        "step": 7,
        "validation_loss": 1.5,
        "validation_tokens": 20,
        "validation/chat/loss": 1.0,
        "validation/chat/tokens": 10,
        "validation/tokenized/poems/loss": 2.0,
        "validation/tokenized/poems/bits_per_byte": 0.9,
        "validation/tokenized/poems/tokens": 10,
    }
    assert validation_row(7, Evaluated(1.5, 0.8), {})["bits_per_byte"] == 0.8


def test_a_number_that_is_not_finite_is_written_as_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    row = step_row(
        step=1,
        loss=math.nan,
        learning_rate=0.1,
        gradient_norm=math.inf,
        tokens=4,
        learned_tokens=4,
        tokens_per_second=2.0,
        mfu=0.5,
        memory={"device_peak_bytes": 7},
    )
    with MetricsLog(str(path), last_step=0) as log:
        log.write(row)
    assert read(path) == [{**row, "loss": None, "gradient_norm": None}]


def test_the_reference_page_has_every_key():
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    memory = {"device_peak_bytes": 1, "resident_bytes": 1}
    values = {"step": 1, "loss": 1.0, "learning_rate": 1.0, "gradient_norm": 1.0, "tokens": 1, "learned_tokens": 1}
    rows = [
        step_row(**values, tokens_per_second=1.0, mfu=0.5, memory=memory),
        validation_row(1, Evaluated(1.0, 1.0), {"<component>": Evaluated(1.0, 1.0)}),
    ]
    sections = [section.partition("\n## ")[0] for section in page.split("## A ")[1:]]
    assert [re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE) for section in sections] == [list(row) for row in rows]


def test_a_full_disk_is_told_with_the_path(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(str(path), last_step=0)
    with open("/dev/full", "ab") as full:
        os.dup2(full.fileno(), log._file.fileno())
    with pytest.raises(StorageFullError, match=f"{path}: no room to write"), log:
        log.write(line(1))
