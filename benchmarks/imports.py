"""What a script pays before its first line, and a shell before its first answer."""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark, python
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, told

PEER_MODULES = {"joblib": "joblib", "doit": "doit.doit_cmd", "luigi": "luigi"}


def commands() -> Sequence[Command]:
    """The bare interpreter, and one import each."""
    found = [
        Command(label="bare", size=1, argv=python("pass")),
        Command(label="marin.execution.lazy", size=1, argv=python("import marin.execution.lazy")),
        Command(label="marin.execution.runner", size=1, argv=python("import marin.execution.runner")),
        Command(label="marin --help", size=1, argv=(str(Path(sys.executable).with_name("marin")), "--help")),
    ]
    peers = [(tool, PEER_MODULES[tool]) for tool in shapes.here()]
    return [*found, *(Command(label=tool, size=1, argv=python(f"import {module}")) for tool, module in peers)]


def rows(measured: Measured) -> Sequence[Row]:
    """Seconds more than the bare interpreter; of ``marin --help`` the whole command."""
    bare = measured.seconds("bare")
    ours = measured.seconds("marin.execution.lazy") - bare
    what = "import marin.execution.lazy, beyond the bare interpreter"
    found = [
        at_most(what, ours, 0.15),
        at_most("marin --help, the whole command", measured.seconds("marin --help"), 0.25),
    ]
    found.append(told("import marin.execution.runner, likewise", measured.seconds("marin.execution.runner") - bare))
    return [*found, *(told(what, ours, tool, measured.seconds(tool) - bare) for tool in shapes.here())]


BENCHMARK = Benchmark(name="imports", rounds=20, commands=commands, rows=rows)
