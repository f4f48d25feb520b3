"""Where the time of a step goes: its pieces, each compiled by itself, beside the whole step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import train_cases as cases
from benchmarks.harness.benchmark import PROGRAMS, Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Measured
from benchmarks.harness.rows import Row, told
from benchmarks.train_cases import MARIN, Case

PIECES = {
    "head": "head and loss",
    "attention": "attention",
    "mlp": "MLP",
    "layers": "embedding, projections, norms and rotations",
    "optimizer": "optimizer",
}
WHOLE = "the whole step"
REPEATS = 7
"""How often each piece is timed; the middle one counts."""


def benchmark(case: Case) -> Benchmark:
    """One run of our own program. Pieces that the compiler sees alone do not add up to the whole exactly."""
    told_case = cases.told(replace(case, steps=REPEATS, save_every=0), "pieces")

    def commands() -> Sequence[Command]:
        argv = (cases.marin_python(), str(PROGRAMS / "train_pieces.py"), told_case)
        command = Command(label=MARIN, size=REPEATS, argv=argv, env={"JAX_PLATFORMS": "cpu"})
        return [replace(command, warmed_by=Command(label="nothing", size=0, argv=("true",)))]

    def rows(measured: Measured) -> Sequence[Row]:
        whole = measured.said(MARIN, REPEATS, "whole").scaled(1000, "ms")
        return [
            told(
                f"{case.title}, where a step goes: {name}",
                measured.said(MARIN, REPEATS, piece).scaled(1000, "ms"),
                WHOLE,
                whole,
            )
            for piece, name in PIECES.items()
        ]

    return Benchmark(name=f"pieces of {case.title}", rounds=1, commands=commands, rows=rows)
