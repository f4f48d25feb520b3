"""A trivial step in a process of its own, against starting a process that imports the step's module."""

from collections.abc import Sequence

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import PROGRAMS, Benchmark, program, python
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most, told

STEPS = 21
IMPORT = "import"


def commands() -> Sequence[Command]:
    """One step and twenty more, one at a time; and the import alone."""
    steps = [
        Command(
            label="marin",
            size=size,
            argv=program("remote_steps.py", size, "{store}"),
            env=shapes.NOT_DURABLE,
            outputs=size,
        )
        for size in (1, STEPS)
    ]
    path = {"PYTHONPATH": str(PROGRAMS)}
    return [*steps, Command(label=IMPORT, size=1, argv=python("import trivial_step"), env=path)]


def rows(measured: Measured) -> Sequence[Row]:
    """Milliseconds that each further step takes beyond the import."""
    step = measured.per_step("marin", STEPS)
    alone = measured.seconds(IMPORT).scaled(1000, step.unit)
    return [
        at_most("a step in its own process, beyond the import of its module", step - alone, 60.0),
        told("the same, all of it", step, "the import", alone),
    ]


BENCHMARK = Benchmark(name="remote_step", rounds=10, commands=commands, rows=rows)
