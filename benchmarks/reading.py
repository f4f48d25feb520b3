"""Shuffled windows of 2,048 tokens, 64 at a time, out of the corpus's token cache."""

from collections.abc import Sequence

from benchmarks import corpus_tools as tools
from benchmarks import upstream
from benchmarks.corpus_tools import FULL
from benchmarks.harness.benchmark import PROGRAMS, Benchmark, is_here, program
from benchmarks.harness.command import Command
from benchmarks.harness.numbers import Figure, Measured
from benchmarks.harness.rows import Row, at_least, at_least_times, not_measured, told

LEAST_PER_SECOND = 100_000
TIMES = {"grain": 2, "Levanter": 10}
WHAT = "shuffled windows of 2,048 tokens, 64 at a time"

_SLICES, _INDEX = "memmap, slices", "memmap, index"


def why_not(reader: str) -> str | None:
    """Why ``reader`` can't be measured. ``None``: it can."""
    if reader == "Levanter":
        return upstream.why_not()
    return None if is_here(reader) else "it is not installed"


def commands() -> Sequence[Command]:
    """Each reads what was written once: our cache, its tokens as one flat file, a Levanter cache of the same texts."""
    folder = ("{corpus}/even", "{tokenizer}", "{store}")
    filled = Command(label="copy", size=FULL, argv=program("copy_tokens.py", *folder))
    found = [
        Command(label="marin", size=FULL, argv=program("read_marin.py", *folder), filled_by=filled),
        Command(label=_SLICES, size=FULL, argv=program("read_memmap.py", "{store}", "slices"), filled_by=filled),
        Command(label=_INDEX, size=FULL, argv=program("read_memmap.py", "{store}", "index"), filled_by=filled),
    ]
    if why_not("grain") is None:
        found.append(Command(label="grain", size=FULL, argv=program("read_grain.py", "{store}"), filled_by=filled))
    if why_not("Levanter") is None:
        argv = (str(upstream.FOLDER / "bin/python"), str(PROGRAMS / "read_levanter.py"), "{store}")
        found.append(Command(label="Levanter", size=FULL, argv=argv, filled_by=tools.peer(upstream.UPSTREAM, FULL)))
    return found


def rows(measured: Measured) -> Sequence[Row]:
    """A number of its own is claimed, and how many times as fast as the loaders; numpy alone is told."""
    ours = _rate(measured, "marin")
    found = [at_least(WHAT, ours, LEAST_PER_SECOND)]
    for reader, times in TIMES.items():
        if (reason := why_not(reader)) is not None:
            found.append(not_measured(WHAT, reader, reason))
        else:
            found.append(at_least_times(WHAT, ours, reader, _rate(measured, reader), times))
    return [*found, *(told(WHAT, ours, reader, _rate(measured, reader)) for reader in (_SLICES, _INDEX))]


def _rate(measured: Measured, reader: str) -> Figure:
    each = measured.of(reader, FULL, lambda sample: sample.said["read"] / sample.said["windows"], "s")
    cpu = measured.of(reader, FULL, lambda sample: sample.said["read_cpu"] / sample.said["windows"], "s")
    return Figure(median=each.median, least=each.least, unit="s", cpu=cpu.median).rate(1, "windows/s")


BENCHMARK = Benchmark(name="reading", rounds=5, commands=commands, rows=rows)
