"""``python -m benchmarks``: time the hot paths and print the table."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cached, chain, imports, independent, layered, memory, planning, remote_step, upstream, waiter
from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import BenchmarkError, Workplace
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rounds import measure
from benchmarks.harness.rows import Row, not_measured
from benchmarks.harness.table import as_json, as_markdown, as_text, circumstances, with_table

BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (imports, independent, cached, planning, chain, layered, remote_step, waiter, memory, upstream)
}

PAGE = Path(__file__).with_name("README.md")


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(prog="python -m benchmarks", description="Time the hot paths, print the table.")
    found.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="PATH", help=", ".join(BENCHMARKS))
    found.add_argument("--rounds", type=int, help="rounds of each; default: what gives a steady median")
    found.add_argument("--scratch", type=Path, help="where stores are made; default: the folder for temporary files")
    found.add_argument("--json", type=Path, help="write the rows and every sample to this file")
    found.add_argument("--write", action="store_true", help="write the table into benchmarks/README.md")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every claim holds. 1: one does not. 2: a benchmark failed, so that there is no number."""
    given = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the stores are removed
    chosen = [BENCHMARKS[name] for name in given.only or BENCHMARKS]
    load = os.getloadavg()[0]
    scratch = Path(tempfile.mkdtemp(prefix="marin-bench-", dir=given.scratch))
    workplace = Workplace(scratch, os.environ)
    measured: dict[str, Measured] = {}
    rows = [not_measured("all", peer, "it is not installed") for peer in shapes.PEERS if peer not in shapes.here()]
    try:
        for benchmark in chosen:
            print(f"{benchmark.name}", file=sys.stderr, flush=True)
            found, new = _carried_out(benchmark, given.rounds, workplace)
            measured[benchmark.name] = found
            rows += new
            print(as_text(new), flush=True)
        told = circumstances(scratch, _peers(), load)
    except BenchmarkError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(as_text(rows))
    print("\n".join(told))
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(rows, measured, told), indent=1) + "\n", encoding="utf-8")
    if given.write:
        table = as_markdown(rows) + "\n" + "".join(f"- {line}\n" for line in told)
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    return 1 if any(row.held is False for row in rows) else 0


def _peers() -> list[str]:
    found = [f"{peer} {importlib.metadata.version(peer)}" for peer in shapes.here()]
    return found if upstream.why_not() is not None else [*found, f"{upstream.PACKAGE} {upstream.version()}"]


def _carried_out(benchmark: Benchmark, rounds: int | None, workplace: Workplace) -> tuple[Measured, Sequence[Row]]:
    def progress(line: str) -> None:
        print(f"  {line}", file=sys.stderr, flush=True)

    found = measure(benchmark.commands(), rounds or benchmark.rounds, workplace, progress)
    return found, benchmark.rows(found)


if __name__ == "__main__":
    sys.exit(main())
