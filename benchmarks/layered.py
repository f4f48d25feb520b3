"""Layers of ten steps, each on all ten of the layer before: what edges cost."""

from collections.abc import Sequence

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, at_most_times, told

DEEP = 400
HALF = 200
SHALLOW = 20


def commands() -> Sequence[Command]:
    """Twice as deep, and against the peers a small one."""
    found = [shapes.marin("layered", depth) for depth in (SHALLOW, HALF, DEEP)]
    return [*found, *(shapes.peer(tool, "layered", SHALLOW) for tool in shapes.here())]


def rows(measured: Measured) -> Sequence[Row]:
    """Whole commands: twice the depth takes at most 2.3 times as long."""
    wide = shapes.WIDTH
    deep, half = measured.seconds("marin", DEEP), measured.seconds("marin", HALF)
    found = [at_most_times(f"{wide} wide × {DEEP} deep, cold, not durable", deep, f"{wide} × {HALF}", half, 2.3)]
    what = f"{wide} wide × {SHALLOW} deep, cold, not durable"
    ours = measured.seconds("marin", SHALLOW)
    return [*found, *(told(what, ours, tool, measured.seconds(tool, SHALLOW)) for tool in shapes.here())]


BENCHMARK = Benchmark(name="layered", rounds=3, commands=commands, rows=rows)
