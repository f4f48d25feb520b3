"""Tokens per second of a training, end to end, beside other trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks import train_cases as cases
from benchmarks import train_pieces
from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Figure, Measured
from benchmarks.harness.rows import Row, at_least_times, at_most, not_measured, told
from benchmarks.train_cases import LEVANTER, MARIN, NANO, SMALL, TRANSFORMERS, Case, Precision, Shape

HOST_PERCENT = 2.0
"""What gathering batches and writing down metrics may take of a step."""

GOAL = ", goal"


@dataclass(frozen=True, kw_only=True)
class Claims:
    """By peer: how many times its rate ours is at least, and shall be; steps and rounds that give a steady median."""

    shape: Shape
    precision: Precision
    floors: Mapping[str, float]
    goals: Mapping[str, float]
    steps: int
    rounds: int


CLAIMS = {
    "nano-fp32": Claims(
        shape=NANO,
        precision="float32",
        floors={LEVANTER: 1.2, TRANSFORMERS: 1.05},
        goals={LEVANTER: 1.4, TRANSFORMERS: 1.2},
        steps=20,
        rounds=5,
    ),
    "nano-bf16": Claims(
        shape=NANO,
        precision="bfloat16",
        floors={LEVANTER: 1.2, TRANSFORMERS: 1.5},
        goals={LEVANTER: 1.4, TRANSFORMERS: 1.7},
        steps=20,
        rounds=5,
    ),
    "small-fp32": Claims(
        shape=SMALL,
        precision="float32",
        floors={LEVANTER: 1.05},
        goals={LEVANTER: 1.15, TRANSFORMERS: 1.0},
        steps=12,
        rounds=3,
    ),
    "small-bf16": Claims(
        shape=SMALL,
        precision="bfloat16",
        floors={LEVANTER: 1.05},
        goals={LEVANTER: 1.15, TRANSFORMERS: 1.0},
        steps=12,
        rounds=3,
    ),
}


def benchmark(name: str, steps: int | None, peers: Sequence[str]) -> Benchmark:
    """The path ``name``, with ``steps`` of each training, beside ``peers``."""
    claims = CLAIMS[name]
    case = Case(shape=claims.shape, precision=claims.precision, steps=steps or claims.steps).saving_once()

    def commands() -> Sequence[Command]:
        return [cases.command(tool, case) for tool in (MARIN, *peers) if cases.why_not(tool) is None]

    def rows(measured: Measured) -> Sequence[Row]:
        return [*_rates(claims, case, peers, measured), _host(case, measured), *_beside(case, peers, measured)]

    def sequel(found: Sequence[Row]) -> Benchmark | None:
        missed = any(row.what.endswith(GOAL) and row.held is False for row in found)
        return train_pieces.benchmark(case) if missed else None

    return Benchmark(name=name, rounds=claims.rounds, commands=commands, rows=rows, sequel=sequel)


def _rates(claims: Claims, case: Case, peers: Sequence[str], measured: Measured) -> Sequence[Row]:
    what, found = f"{case.title}: training with one checkpoint", list[Row]()
    ours = cases.rate(measured, MARIN, case)
    for peer in peers:
        if (reason := cases.why_not(peer)) is not None:
            found.append(not_measured(what, peer, reason))
            continue
        theirs = cases.rate(measured, peer, case)
        floor, goal = claims.floors.get(peer), claims.goals.get(peer)
        if floor is not None:
            found.append(at_least_times(what, ours, peer, theirs, floor))
        if goal is not None:
            found.append(at_least_times(what + GOAL, ours, peer, theirs, goal))
        if floor is None and goal is None:
            found.append(told(what, ours, peer, theirs))
    return found or [told(what, ours)]


def _host(case: Case, measured: Measured) -> Row:
    def percent(part: str) -> Figure:
        return measured.of(MARIN, case.steps, lambda sample: 100 * sample.said[part] / sample.said["window"], "%")

    figure = replace(percent("host"), cpu=percent("host_cpu").median)
    return at_most(f"{case.title}: gathering batches and writing down metrics, of a step", figure, HOST_PERCENT)


def _beside(case: Case, peers: Sequence[str], measured: Measured) -> Sequence[Row]:
    """Told of the same runs: the first step and the memory."""
    start, memory = f"{case.title}: start of the process to first step", f"{case.title}: memory of the largest process"
    ours = cases.first_step(measured, MARIN, case), cases.resident(measured, MARIN, case)
    found = list[Row]()
    for peer in peers:
        if cases.why_not(peer) is None:
            found.append(told(start, ours[0], peer, cases.first_step(measured, peer, case)))
            found.append(told(memory, ours[1], peer, cases.resident(measured, peer, case)))
    return found or [told(start, ours[0]), told(memory, ours[1])]
