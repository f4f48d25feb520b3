"""The table and the programs behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import independent, upstream
from benchmarks.__main__ import BENCHMARKS, PAGE, main
from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command, Sample, Workplace
from benchmarks.harness.numbers import Figure, Measured
from benchmarks.harness.rows import at_most, at_most_times, not_measured
from benchmarks.harness.table import BEGIN, END, as_markdown, as_text, with_table
from tests.executors.processes import PATIENCE, eventually, marked

ROOT = Path(__file__).parents[2]


def seconds(value):
    return Figure(median=value, least=value / 2, unit="s", cpu=value / 4)


def test_a_row_shows_both_sides_the_ratio_and_the_verdict():
    row = at_most_times("cold", seconds(3.0), "joblib", seconds(2.0), 1.0)
    assert as_markdown([row]).splitlines()[-1] == (
        "| cold | 3.00 s | 0.75 s | joblib | 2.00 s | 1.50 × | 1.50 × | 1.50 × | ≤ 1 × joblib | **no** |"
    )


def test_a_peer_that_is_not_here_is_said_not_to_be_measured():
    assert "not measured here: it is not installed" in as_text([not_measured("cold", "luigi", "it is not installed")])


def test_the_table_replaces_the_one_before_and_nothing_else():
    page = f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\nThe end.\n"
    assert with_table(page, "new\n") == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nThe end.\n"
    assert with_table(with_table(page, "a\n"), "b\n") == with_table(page, "b\n")


def test_a_page_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("# Title\n", "new")


def test_the_page_has_a_place_for_the_table():
    with_table(PAGE.read_text(encoding="utf-8"), "new")


@pytest.fixture
def one_benchmark(monkeypatch):
    def use(code, limit=60.0):
        command = Command(label="marin", size=1, argv=(sys.executable, "-c", code))
        benchmark = Benchmark(
            name="trial",
            rounds=2,
            commands=lambda: [command],
            rows=lambda measured: [at_most("a trial", measured.seconds("marin"), limit)],
        )
        monkeypatch.setitem(BENCHMARKS, "trial", benchmark)

    return use


def test_all_claims_held_ends_with_0_and_leaves_nothing(one_benchmark, tmp_path, capsys):
    one_benchmark("pass")
    (scratch := tmp_path / "scratch").mkdir()
    assert main(["--only", "trial", "--scratch", str(scratch), "--json", str(tmp_path / "all.json")]) == 0
    assert "a trial" in capsys.readouterr().out
    found = json.loads((tmp_path / "all.json").read_text())
    assert [row["held"] for row in found["rows"] if row["what"] == "a trial"] == [True]
    assert len(found["samples"]["trial"]["marin 1"]) == 2
    assert list(scratch.iterdir()) == []


def test_a_claim_that_does_not_hold_ends_with_1(one_benchmark, tmp_path):
    one_benchmark("pass", limit=1e-6)
    assert main(["--only", "trial", "--scratch", str(tmp_path)]) == 1


def test_a_stopped_benchmark_leaves_no_store_and_no_process(tmp_path):
    (scratch := tmp_path / "scratch").mkdir()
    mark = uuid.uuid4().hex
    with open(tmp_path / "output", "wb") as output:
        running = subprocess.Popen(
            [sys.executable, "-m", "benchmarks", "--only", "waiter", "--scratch", str(scratch)],
            cwd=ROOT,
            env={**os.environ, "BENCH_MARK": mark},
            stdout=output,
            stderr=output,
        )
    try:
        eventually(lambda: list(scratch.glob("*/store-*/*")))
        running.terminate()
        assert running.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    finally:
        running.kill()
        running.wait()
    assert list(scratch.iterdir()) == []
    eventually(lambda: not marked(mark, variable="BENCH_MARK"))


def test_a_command_that_fails_ends_with_2_and_writes_no_table(one_benchmark, tmp_path, monkeypatch, capsys):
    (page := tmp_path / "page.md").write_text(f"{BEGIN}\nold\n{END}\n")
    monkeypatch.setattr("benchmarks.__main__.PAGE", page)
    one_benchmark("raise SystemExit('no such thing')")
    assert main(["--only", "trial", "--scratch", str(tmp_path), "--write"]) == 2
    assert "no such thing" in capsys.readouterr().err
    assert "old" in page.read_text()


def judged(name):
    """The rows of a benchmark whose every command has been run once."""
    said = {"plan": 0.5, "plan_cpu": 0.4, "late": 0.1}
    return BENCHMARKS[name].rows(
        Measured(
            {
                (command.label, command.size): [
                    # The bare interpreter, and an import alone, take less than all else.
                    Sample(
                        seconds=0.01 if command.label in ("bare", "import") else 1.0 + command.size,
                        cpu_seconds=command.size,
                        max_rss_mb=50,
                        said=said,
                    )
                ]
                for command in BENCHMARKS[name].commands()
            }
        )
    )


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("peers", [shapes.PEERS, ()], ids=["beside all peers", "alone"])
def test_every_row_can_be_made_from_what_its_commands_give(name, peers, monkeypatch):
    monkeypatch.setattr(shapes, "here", lambda: list(peers))
    monkeypatch.setattr(upstream, "why_not", lambda: None if peers else "it is not installed")
    rows = judged(name)
    assert rows
    assert {row.peer for row in rows} & set(shapes.PEERS) <= set(peers)
    # Of independent steps something is claimed only against a peer, of upstream nothing.
    assert any(row.held is not None for row in rows) or name == "upstream" or (name == "independent" and not peers)


@pytest.mark.parametrize("shape", ["independent", "chain", "layered"])
def test_our_program_makes_the_graph_that_it_is_timed_for(shape, tmp_path):
    Workplace(tmp_path, {}).measure(shapes.marin(shape, 3))


@pytest.mark.parametrize("floor", independent.FLOORS)
def test_the_floors_make_as_many_files_and_do_nothing_the_second_time(floor, tmp_path):
    workplace = Workplace(tmp_path, {})
    cold = shapes.peer(floor, "independent", 3)
    workplace.measure(cold)
    workplace.measure(replace(cold, filled_by=cold))


def test_the_program_of_processes_makes_its_steps(tmp_path):
    small = min(BENCHMARKS["remote_step"].commands(), key=lambda command: (command.label != "marin", command.size))
    Workplace(tmp_path, {}).measure(small)


def test_the_program_of_waiters_says_how_late_it_was(tmp_path):
    short = min(BENCHMARKS["waiter"].commands(), key=lambda command: command.size)
    late = Workplace(tmp_path, {}).measure(short).said["late"]
    assert late > 0


def test_upstream_is_measured_only_where_it_was_installed_and_else_the_row_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr(upstream, "FOLDER", tmp_path)
    assert upstream.commands() == []
    assert upstream.rows(Measured({}))[0].note == "not measured here: it is not installed"
    (tmp_path / "why-not").write_text("no Python\n")
    assert upstream.rows(Measured({}))[0].note == "not measured here: no Python"


def test_what_keeps_upstream_from_being_installed_is_told_in_one_line(tmp_path):
    folder = tmp_path / "an environment"
    script = ROOT / "benchmarks/install_upstream.sh"
    tried = subprocess.run([script, folder, "/usr/bin/false"], capture_output=True, text=True, check=True)
    reason = (folder / "why-not").read_text()
    assert reason == "/usr/bin/false is no Python 3.12 that runs\n"
    assert tried.stdout == f"upstream Marin is not measured here: {reason}"


def test_the_command_line_names_every_benchmark():
    helped = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert all(name in helped.stdout for name in BENCHMARKS)
