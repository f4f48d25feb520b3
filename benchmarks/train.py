"""``python -m benchmarks.train``: time trainings beside other trainers and print the table."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import token_ids, train_cases, train_memory, train_rates, train_save, train_start, upstream
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.rows import Row
from benchmarks.harness.suite import Suite, carry_out, parser
from benchmarks.train_cases import NANO, PEERS, SKIPPED, TINY

PAGE = Path(__file__).with_name("README.md")
BEGIN = "<!-- measured: written by make bench-train -->"

LIBRARIES = ("torch", "transformers", "litgpt", "accelerate", "datasets")
_OURS = ("jax", "optax", "numpy")


def benchmarks(steps: int | None = None, peers: Sequence[str] = PEERS) -> Mapping[str, Benchmark]:
    """All paths, by name. ``steps`` are those of each training whose rate is measured."""
    found = [
        *(train_rates.benchmark(name, steps, peers) for name in train_rates.CLAIMS),
        train_start.BENCHMARK,
        train_memory.benchmark(peers),
        train_save.BENCHMARK,
    ]
    return {each.name: each for each in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every claim and goal holds. 1: one does not. 2: a benchmark failed, so that there is no number."""
    suite = Suite(benchmarks=benchmarks(), begin=BEGIN, peers=_versions, absent=list[Row])
    options = parser(suite, "python -m benchmarks.train", "Time trainings, print the table.")
    options.add_argument(
        "--steps", type=_steps, help="steps of each training whose rate is measured; default: 20 or 12"
    )
    options.add_argument("--beside", nargs="*", choices=PEERS, default=PEERS, metavar="PEER", help="; ".join(PEERS))
    options.add_argument(
        "--input",
        type=Path,
        default=Path(f"{sys.prefix}-input"),
        help="where the ids to train on are kept; default: %(default)s",
    )
    given = options.parse_args(arguments)
    for shape in (NANO, TINY):
        token_ids.write(given.input, shape.vocab_size)
    told = [f"tokens/s of all steps but the first {SKIPPED}; {token_ids.IDS:,} ids, the same for all"]
    chosen = replace(suite, benchmarks=benchmarks(given.steps, given.beside))
    return carry_out(chosen, given, PAGE, {"ids": given.input.absolute()}, told)


def _steps(text: str) -> int:
    steps = int(text) if text.isdigit() else 0
    if steps < SKIPPED + 3:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from {SKIPPED + 3} on")
    return steps


def _versions() -> list[str]:
    found = list[str]()
    for library in LIBRARIES:
        try:
            found.append(f"{library} {importlib.metadata.version(library)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    if upstream.why_not() is None:
        theirs = (upstream.version(package, upstream.FOLDER) for package in ("marin-levanter", "jax"))
        found.append("Levanter {} on jax {}".format(*theirs))
    ours = train_cases.MARIN_FOLDER if train_cases.MARIN_FOLDER.exists() else Path(sys.prefix)
    python = ", ".join(sorted(path.name for path in ours.glob("lib/python*")))
    return [*found, f"ours on {python}, " + ", ".join(f"{name} {upstream.version(name, ours)}" for name in _OURS)]


if __name__ == "__main__":
    sys.exit(main())
