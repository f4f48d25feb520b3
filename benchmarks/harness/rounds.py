"""Rounds: every command once in each, so that a busy moment of the machine hits all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.harness.command import Command, Sample, Workplace
from benchmarks.harness.numbers import Measured


def in_turn(commands: Sequence[Command], round_number: int) -> list[Command]:
    """The order of a round: each begins with another command, so that none is always the first after a pause."""
    start = round_number % len(commands)
    return [*commands[start:], *commands[:start]]


def smallest_of_each(commands: Sequence[Command]) -> list[Command]:
    """Of each label the command of the smallest size: what is run once, unmeasured, to warm caches of code."""
    smallest: dict[str, Command] = {}
    for command in commands:
        known = smallest.setdefault(command.label, command)
        if command.size < known.size:
            smallest[command.label] = command
    return list(smallest.values())


def measure(
    commands: Sequence[Command], rounds: int, workplace: Workplace, progress: Callable[[str], None]
) -> Measured:
    """The samples of ``rounds`` interleaved rounds. Raises ``BenchmarkError`` at the first command that fails."""
    samples: dict[tuple[str, int], list[Sample]] = {(command.label, command.size): [] for command in commands}
    if len(samples) != len(commands):
        raise ValueError("two commands have one label and size, so that their times would be mixed")
    if not commands:
        return Measured(samples)
    try:
        for command in smallest_of_each(commands):
            workplace.measure(command.warmed_by or command)
        for number in range(rounds):
            for command in in_turn(commands, number):
                sample = workplace.measure(command)
                samples[command.label, command.size].append(sample)
                progress(f"round {number + 1}/{rounds}  {command.name:<28} {sample.seconds:8.3f} s")
    finally:
        workplace.forget_stores()
    return Measured(samples)
