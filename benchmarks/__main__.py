"""``python -m benchmarks``: time the hot paths of the execution core and print the table."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cached, chain, imports, independent, layered, memory, planning, remote_step, upstream, waiter
from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.rows import Row, not_measured
from benchmarks.harness.suite import Suite, carry_out, parser
from benchmarks.harness.table import BEGIN

BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (imports, independent, cached, planning, chain, layered, remote_step, waiter, memory, upstream)
}

PAGE = Path(__file__).with_name("README.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every claim holds. 1: one does not. 2: a benchmark failed, so that there is no number."""
    suite = Suite(benchmarks=BENCHMARKS, begin=BEGIN, peers=_peers, absent=_absent)
    given = parser(suite, "python -m benchmarks", "Time the hot paths, print the table.").parse_args(arguments)
    return carry_out(suite, given, PAGE)


def _absent() -> list[Row]:
    return [not_measured("all", peer, "it is not installed") for peer in shapes.PEERS if peer not in shapes.here()]


def _peers() -> list[str]:
    found = [f"{peer} {importlib.metadata.version(peer)}" for peer in shapes.here()]
    return found if upstream.why_not() is not None else [*found, f"{upstream.PACKAGE} {upstream.version()}"]


if __name__ == "__main__":
    sys.exit(main())
