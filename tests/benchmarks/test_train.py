"""The benchmarks of training: every row can be made, and our program says what they are made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import token_ids, train, train_cases, train_pieces, train_rates, train_save, train_start
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command, Sample, Workplace
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import told
from benchmarks.harness.suite import Suite, carry_out, parser
from benchmarks.programs.train_clock import said, save_delay
from benchmarks.train_cases import LEVANTER, MARIN, PEERS, TINY, TRANSFORMERS, Case

ROOT = Path(__file__).parents[2]
PIECES = {name: 0.1 for piece in (*train_pieces.PIECES, "whole") for name in (piece, f"{piece}_cpu")}


def sample(command, **changed):
    values = {
        "first_step": 5.0,
        "first_step_cpu": 6.0,
        "window": 10.0,
        "window_cpu": 15.0,
        "host": 0.1,
        "host_cpu": 0.1,
        "step": 1.0,
    }
    return Sample(
        seconds=20.0,
        cpu_seconds=30.0,
        max_rss_mb=1000,
        said={**values, "save_delay": 0.1, **PIECES, **changed},
        peak_pss_mb=1000 if command.watched else None,
    )


def measured(benchmark, **changed_of):
    return Measured(
        {
            (command.label, command.size): [sample(command, **changed_of.get(command.label, {}))]
            for command in benchmark.commands()
        }
    )


@pytest.fixture
def peers(request, monkeypatch):
    """All that are measured beside us are here, or none."""
    monkeypatch.setattr(train_cases, "is_here", lambda module: request.param)
    monkeypatch.setattr(train_cases.shutil, "which", lambda name: "/usr/bin/c++")
    monkeypatch.setattr(train_cases.upstream, "why_not", lambda: None if request.param else "it is not installed")
    return request.param


@pytest.mark.parametrize("name", train.benchmarks())
@pytest.mark.parametrize("peers", [True, False], indirect=True, ids=["beside all peers", "alone"])
def test_every_row_can_be_made_from_what_its_commands_give(name, peers):
    benchmark = train.benchmarks(steps=9)[name]
    rows = benchmark.rows(measured(benchmark))
    assert any(row.held is not None for row in rows) or name == "train-memory"
    assert {row.peer for row in rows if row.ratio is not None} >= (set(PEERS) if peers and "nano" in name else set())


@pytest.mark.parametrize("peers", [True], indirect=True)
def test_a_rate_is_claimed_by_its_floor_and_its_goal(peers):
    benchmark = train.benchmarks()["nano-bf16"]
    found = benchmark.rows(measured(benchmark, **{LEVANTER: {"window": 13.0}, TRANSFORMERS: {"window": 18.0}}))
    verdicts = {(row.peer, row.limit): row.held for row in found if row.peer and row.held is not None}
    assert verdicts == {
        (LEVANTER, "≥ 1.2 × Levanter"): True,
        (LEVANTER, "≥ 1.4 × Levanter"): False,
        (TRANSFORMERS, "≥ 1.5 × HF Trainer"): True,
        (TRANSFORMERS, "≥ 1.7 × HF Trainer"): True,
    }


@pytest.mark.parametrize("peers", [True], indirect=True)
def test_a_goal_that_is_missed_asks_where_the_time_goes(peers):
    benchmark = train.benchmarks()["small-fp32"]

    def following(window):
        return benchmark.sequel(
            benchmark.rows(measured(benchmark, **{TRANSFORMERS: {"window": window}, LEVANTER: {"window": 12}}))
        )

    assert following(10.0) is None
    pieces = following(9.9)
    assert pieces is not None
    assert next(row.what for row in pieces.rows(measured(pieces))) == "SMALL fp32, where a step goes: head and loss"


def test_a_peer_that_is_left_out_is_not_asked_for():
    labels = {each.label for each in train.benchmarks(peers=[])["nano-fp32"].commands()}
    assert labels == {MARIN}


def test_the_checkpoint_lies_amid_the_steps_that_count_and_is_the_only_one():
    for steps in range(train_cases.SKIPPED + 3, 40):
        case = Case(shape=TINY, precision="float32", steps=steps).saving_once()
        assert case.skipped < case.save_every < steps < 2 * case.save_every


def test_what_comes_before_the_steps_that_count_is_in_no_rate():
    stamps = [(time, 2 * time, time / 100, 0.0) for time in (107.0, 109.0, 110.0, 111.0, 114.0)]
    found = said(100.0, stamps, {"steps": 5, "skipped": 2, "save_every": 3}, started_cpu=1.0)
    assert found == {
        "first_step": 7.0,
        "first_step_cpu": 215.0,
        "window": 5.0,
        "window_cpu": 10.0,
        "host": pytest.approx(0.05),
        "host_cpu": 0.0,
        "step": 1.0,
    }


def test_a_program_that_missed_a_step_says_so():
    with pytest.raises(AssertionError, match="1 steps were noted where 2 were due"):
        said(0.0, [(1.0, 1.0, 0.0, 0.0)], {"steps": 2, "skipped": 1, "save_every": 0})


def test_a_save_is_charged_with_what_the_steps_behind_it_take_longer():
    seconds = [1.0] * 39  # what step 2, 3, ... took
    for saved in range(4, 40, 4):
        seconds[saved - 1] = 1.3  # the step behind the save
    assert save_delay(seconds, 4) == pytest.approx(0.3)
    assert save_delay([1.0] * 39, 4) == 0


def test_a_save_that_costs_too_much_does_not_hold():
    benchmark = train_save.BENCHMARK
    assert benchmark.rows(measured(benchmark))[0].held
    assert not benchmark.rows(measured(benchmark, marin={"save_delay": 0.21}))[0].held
    hidden = benchmark.rows(measured(benchmark, marin={"save_delay": -0.01}))[0]
    assert (hidden.held, hidden.note) == (None, "less than the noise")


def test_half_of_the_time_is_claimed_of_what_was_compiled_before():
    benchmark = train_start.BENCHMARK
    found = benchmark.rows(measured(benchmark, **{train_start.AGAIN: {"first_step": 6.5}, MARIN: {"first_step": 11.0}}))
    assert [row.held for row in found] == [True, False, None]


def test_all_ids_are_below_the_vocabulary_and_the_same_each_time(tmp_path):
    first, second = (token_ids.write(tmp_path / name, 512) for name in "ab")
    ids = np.fromfile(first, np.uint16)
    assert first.read_bytes() == second.read_bytes()
    assert (len(ids), int(ids.max())) == (token_ids.IDS, 511)


def test_our_program_trains_and_says_what_the_rows_are_made_of(tmp_path):
    token_ids.write(tmp_path / "ids", TINY.vocab_size)
    workplace = Workplace(tmp_path / "work", {}, {"ids": tmp_path / "ids"})
    case = replace(Case(shape=TINY, precision="float32", steps=6).saving_once())
    found = workplace.measure(train_cases.command(MARIN, case)).said
    assert found["first_step"] > 0
    assert found["host_cpu"] > 0
    assert 0 < found["step"] < found["window"]


def test_our_step_is_taken_apart(tmp_path):
    benchmark = train_pieces.benchmark(Case(shape=TINY, precision="bfloat16", steps=9))
    (command,) = benchmark.commands()
    found = Workplace(tmp_path, {}).measure(command).said
    assert found.keys() >= PIECES.keys()
    assert min(found["head"], found["attention"], found["mlp"], found["optimizer"], found["whole"]) > 0


def test_a_command_is_warmed_by_the_one_that_it_names_and_a_sequel_is_measured(tmp_path, capsys):
    ran = tmp_path / "ran"

    def noting(label):
        return Command(label=label, size=1, argv=("sh", "-c", f"echo {label} >> {ran}"))

    def one(label, warmed_by, sequel):
        commands = [replace(noting(label), warmed_by=noting(warmed_by))]

        def rows(found):
            return [told(label, found.seconds(label))]

        return Benchmark(name=label, rounds=1, commands=lambda: commands, rows=rows, sequel=sequel)

    last = one("last", "warm", lambda rows: None)
    first = one("first", "warm", lambda rows: last)
    suite = Suite(benchmarks={"first": first}, begin="", peers=list[str], absent=list)
    given = parser(suite, "it", "").parse_args(["--scratch", str(tmp_path)])
    assert carry_out(suite, given, tmp_path / "page") == 0
    assert ran.read_text().split() == ["warm", "first", "warm", "last"]
    assert "last" in capsys.readouterr().out


@pytest.mark.parametrize("peers", [True], indirect=True)
def test_every_program_of_a_command_is_there_and_is_told_the_case(peers):
    for benchmark in train.benchmarks().values():
        for command in benchmark.commands():
            assert Path(command.argv[1]).is_file(), command.argv
            assert json.loads(command.argv[2])["steps"] == command.size


def test_the_command_line_names_every_path_and_refuses_too_few_steps():
    module = [sys.executable, "-m", "benchmarks.train"]
    wide = {**os.environ, "COLUMNS": "1000"}
    helped = subprocess.run([*module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True, env=wide)
    assert all(name in helped.stdout for name in (*train_rates.CLAIMS, "first-step", "save"))
    few = subprocess.run([*module, "--steps", "4"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert few.returncode == 2
    assert "4 is no whole number from 6 on" in few.stderr


def test_the_page_has_a_place_for_the_table():
    assert train.PAGE.read_text(encoding="utf-8").count(train.BEGIN) == 1
