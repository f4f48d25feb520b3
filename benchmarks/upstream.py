"""The same steps in upstream Marin, where it could be installed. It is slow: there are few of them."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import PROGRAMS, Benchmark, python
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, not_measured, told

FOLDER = Path(f"{sys.prefix.removesuffix('-data').removesuffix('-train')}-upstream")
"""Its environment: it needs another Python and its packages would clash with ours."""

PACKAGE = "marin-core"
UPSTREAM = "upstream"
STEPS = 200
CHAIN = 10
CACHED = "cached"
IMPORT = "import"


def why_not() -> str | None:
    """Why it can't be measured here. ``None``: it can."""
    reason = FOLDER / "why-not"
    if reason.exists():
        return reason.read_text(encoding="utf-8").strip()
    return None if (FOLDER / "bin/python").exists() else "it is not installed"


def version(package: str = PACKAGE, folder: Path = FOLDER) -> str:
    """What is installed in the environment ``folder``, such as ``0.2.227``."""
    for found in importlib.metadata.distributions(
        path=[str(path) for path in folder.glob("lib/python*/site-packages")]
    ):
        if found.name == package:
            return found.version
    return "of an unknown version"


def _steps(shape: str, size: int) -> Command:
    program = PROGRAMS / "upstream_steps.py"
    argv = (str(FOLDER / "bin/python"), str(program), shape, str(size))
    return Command(label=f"{UPSTREAM} {shape}", size=size, argv=argv, env={"MARIN_PREFIX": "{store}"}, outputs=size)


def _cached(command: Command) -> Command:
    return replace(command, label=f"{command.label} {CACHED}", filled_by=command)


def commands() -> Sequence[Command]:
    """Both tools: independent steps cold and cached, a short chain, the import."""
    if why_not() is not None:
        return []
    found: list[Command] = []
    for shape, sizes in (("independent", (1, STEPS)), ("chain", (1, CHAIN))):
        for size in sizes:
            ours = shapes.marin(shape, size, label=f"marin {shape}")
            found += [ours, _steps(shape, size)]
            if shape == "independent":
                found += [_cached(ours), _cached(_steps(shape, size))]
    line = "import marin.execution.lazy"
    theirs = Command(label=f"{UPSTREAM} {IMPORT}", size=1, argv=(str(FOLDER / "bin/python"), "-c", line))
    return [*found, Command(label=f"marin {IMPORT}", size=1, argv=python(line)), theirs]


def rows(measured: Measured) -> Sequence[Row]:
    """Told: what a step costs in both, and the import."""
    what = f"{STEPS} independent, cold, not durable, per step"
    if (reason := why_not()) is not None:
        return [not_measured(what, UPSTREAM, reason)]

    def row(what: str, kind: str, steps: int) -> Row:
        ours, theirs = (measured.per_step(f"{tool} {kind}", steps) for tool in ("marin", UPSTREAM))
        return told(what, ours, UPSTREAM, theirs)

    imports = [measured.seconds(f"{tool} {IMPORT}") for tool in ("marin", UPSTREAM)]
    return [
        row(what, "independent", STEPS),
        row(f"{STEPS} cached, per step", f"independent {CACHED}", STEPS),
        row(f"chain of {CHAIN}, cold, not durable, per step", "chain", CHAIN),
        told("python -c 'import marin.execution.lazy'", imports[0], UPSTREAM, imports[1]),
    ]


BENCHMARK = Benchmark(name="upstream", rounds=3, commands=commands, rows=rows)
