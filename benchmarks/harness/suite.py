"""Carries out a set of benchmarks, prints their table, and writes it into the page."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import BenchmarkError, Workplace
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rounds import measure
from benchmarks.harness.rows import Row
from benchmarks.harness.table import as_json, as_markdown, as_text, circumstances, with_table


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Benchmarks that share a table. ``begin`` is the mark in the page behind which the table stands.

    ``peers`` names what is measured beside us, with versions; ``absent`` are the rows of what is not here.
    """

    benchmarks: Mapping[str, Benchmark]
    begin: str
    peers: Callable[[], Sequence[str]]
    absent: Callable[[], Sequence[Row]]


def parser(suite: Suite, program: str, description: str) -> argparse.ArgumentParser:
    """The options that every suite has."""
    names = suite.benchmarks
    found = argparse.ArgumentParser(prog=program, description=description)
    found.add_argument("--only", nargs="+", choices=names, metavar="PATH", help=", ".join(names))
    found.add_argument("--rounds", type=int, help="rounds of each; default: what gives a steady median")
    found.add_argument("--scratch", type=Path, help="where stores are made; default: the folder for temporary files")
    found.add_argument("--json", type=Path, help="write the rows and every sample to this file")
    found.add_argument("--write", action="store_true", help="write the table into benchmarks/README.md")
    return found


def carry_out(
    suite: Suite,
    given: argparse.Namespace,
    page: Path,
    places: Mapping[str, Path] | None = None,
    told: Sequence[str] = (),
) -> int:
    """0: every claim holds. 1: one does not. 2: a benchmark failed, so that there is no number.

    ``places`` are what commands may name in braces; ``told`` are more lines about what was measured.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the stores are removed
    chosen = [suite.benchmarks[name] for name in given.only or suite.benchmarks]
    load = os.getloadavg()[0]
    scratch = Path(tempfile.mkdtemp(prefix="marin-bench-", dir=given.scratch))
    workplace = Workplace(scratch, os.environ, places)
    measured: dict[str, Measured] = {}
    rows = [*suite.absent()]
    try:
        for benchmark in chosen:
            following: Benchmark | None = benchmark
            while following is not None:
                print(f"{following.name}", file=sys.stderr, flush=True)
                measured[following.name] = _measured(following, given.rounds, workplace)
                new = following.rows(measured[following.name])
                rows += new
                print(as_text(new), flush=True)
                following = following.sequel(new)
        lines = [*circumstances(scratch, suite.peers(), load), *told]
    except BenchmarkError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(as_text(rows))
    print("\n".join(lines))
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(rows, measured, lines), indent=1) + "\n", encoding="utf-8")
    if given.write:
        table = as_markdown(rows) + "\n" + "".join(f"- {line}\n" for line in lines)
        page.write_text(with_table(page.read_text(encoding="utf-8"), table, suite.begin), encoding="utf-8")
    return 1 if any(row.held is False for row in rows) else 0


def _measured(benchmark: Benchmark, rounds: int | None, workplace: Workplace) -> Measured:
    def progress(line: str) -> None:
        print(f"  {line}", file=sys.stderr, flush=True)

    return measure(benchmark.commands(), rounds or benchmark.rounds, workplace, progress)
