"""``python -m benchmarks.data``: time the data side beside other tools and print the table."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    cached_corpus,
    corpus,
    reading,
    scaling,
    skew,
    tokenizing,
    tokenizing_memory,
    upstream,
    vocabulary,
)
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import BenchmarkError
from benchmarks.harness.rows import Row
from benchmarks.harness.suite import Suite, carry_out, parser

BENCHMARKS: dict[str, Benchmark] = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (cached_corpus, tokenizing, tokenizing_memory, skew, scaling, reading)
}

PAGE = Path(__file__).with_name("README.md")
BEGIN = "<!-- measured: written by make bench-data -->"

LIBRARIES = ("fastokens", "tokenizers", "datasets", "datatrove", "grain", "numpy", "pyarrow")


def main(arguments: Sequence[str] | None = None) -> int:
    """0: every claim holds. 1: one does not. 2: a benchmark failed, so that there is no number."""
    suite = Suite(benchmarks=BENCHMARKS, begin=BEGIN, peers=_versions, absent=list[Row])
    options = parser(suite, "python -m benchmarks.data", "Time the data side, print the table.")
    options.add_argument(
        "--input",
        type=Path,
        default=Path(f"{sys.prefix}-input"),
        help="where corpus and vocabulary are kept; default: %(default)s",
    )
    options.add_argument("--megabytes", type=float, default=100.0, help="text of the corpus; default: 100")
    given = options.parse_args(arguments)
    try:
        tokenizer = vocabulary.fetch(given.input / "vocabulary")
        summary = corpus.assemble(given.input / "corpus", given.megabytes)
    except BenchmarkError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    places = {"corpus": summary.parent, "tokenizer": tokenizer, "vocabulary": tokenizer.parent}
    return carry_out(suite, given, PAGE, places, composition(json.loads(summary.read_text(encoding="utf-8"))))


def composition(summary: Mapping[str, Any]) -> list[str]:
    """One line that says what the corpus is."""
    kinds = ", ".join(f"{size / 1e6:.1f} MB {kind}" for kind, size in summary["text_bytes_of_kind"].items())
    return [
        f"{summary['documents']:,} documents, {summary['text_bytes'] / 1e6:.1f} MB of text ({kinds}), median "
        f"{summary['median_bytes'] / 1e3:.1f} kB, largest {summary['largest_bytes'] / 1e3:.0f} kB, "
        f"sha256 {summary['sha256'][:12]}; vocabulary {vocabulary.PACKAGE}"
    ]


def _versions() -> list[str]:
    found = list[str]()
    for library in LIBRARIES:
        try:
            found.append(f"{library} {importlib.metadata.version(library)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found if upstream.why_not() is not None else [*found, f"{upstream.PACKAGE} {upstream.version()}"]


if __name__ == "__main__":
    sys.exit(main())
