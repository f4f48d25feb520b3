"""A hot path: its commands, and what is claimed of their times."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row

PROGRAMS = Path(__file__).parents[1] / "programs"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One hot path. ``rounds`` is how many give a steady median on a calm machine.

    ``sequel`` is what its rows ask for, measured behind it: where the time goes, if a claim does not hold.
    """

    name: str
    rounds: int
    commands: Callable[[], Sequence[Command]]
    rows: Callable[[Measured], Sequence[Row]]
    sequel: Callable[[Sequence[Row]], Benchmark | None] = lambda rows: None


def is_here(module: str) -> bool:
    """Whether this environment has the peer."""
    return importlib.util.find_spec(module) is not None


def program(name: str, *arguments: object) -> tuple[str, ...]:
    """The command line of a script in ``programs``, run by the interpreter that runs us."""
    return (sys.executable, str(PROGRAMS / name), *map(str, arguments))


def python(code: str) -> tuple[str, ...]:
    """The command line of one line of Python."""
    return (sys.executable, "-c", code)
