"""The last run of a chaos: nothing disturbs it, and it builds all that is missing."""

from __future__ import annotations

import sys

from marin.execution import RunOptions
from marin.execution.runner import run
from tests.chaos.pipeline import handles
from tests.chaos.runner import Journalist, tell_publications


def main(store: str, generations: str) -> None:
    tell_publications()
    graph = [handle for generation in range(int(generations)) for handle in handles(generation)]
    run(*graph, options=RunOptions(prefix=store, durable=False, max_concurrent=8), reporter=Journalist())


if __name__ == "__main__":
    main(*sys.argv[1:])
