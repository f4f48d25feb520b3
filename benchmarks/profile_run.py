"""``python -m benchmarks.profile_run``: where the time of cold steps goes, in microseconds per step.

Everything is the difference between a large run and a small one, so that what a run costs once is left out.
"""

from __future__ import annotations

import argparse
import os
import pstats
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from benchmarks.harness import shapes
from benchmarks.harness.benchmark import program
from benchmarks.harness.command import BenchmarkError, Command, Sample, Workplace
from benchmarks.harness.numbers import number

SMALL = 10

Counts = Mapping[str, tuple[float, float]]
"""Of each name how often, and how many seconds."""


def per_step(large: Counts, small: Counts, steps: int) -> list[tuple[str, float, float]]:
    """Name, times per step and microseconds per step, the dearest first."""
    found: list[tuple[str, float, float]] = []
    for name, (times, seconds) in large.items():
        times_small, seconds_small = small.get(name, (0.0, 0.0))
        found.append((name, (times - times_small) / steps, (seconds - seconds_small) / steps * 1e6))
    return sorted(found, key=lambda entry: (-entry[2], -entry[1]))


def functions(stats_file: Path, *, cumulative: bool) -> Counts:
    """Calls and processor seconds of each function: its own, or with all that it calls."""
    # The stubs do not know this attribute, which the documentation of pstats.Stats is built around.
    entries = cast("dict[tuple[str, int, str], Any]", pstats.Stats(str(stats_file)).stats)  # type: ignore[attr-defined]
    return {
        f"{_short(file)}:{line}({name})": (calls, total if cumulative else own)
        for (file, line, name), (_, calls, own, total, _) in entries.items()
    }


def _short(file: str) -> str:
    for mark in ("/src/", "/site-packages/", "/lib/python3"):
        if mark in file:
            return file.rpartition(mark)[2]
    return file


def system_calls(text: str) -> Counts:
    """The table that ``strace -c`` prints: calls and seconds of each system call."""
    found: dict[str, tuple[float, float]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0].replace(".", "").isdigit() and words[-1] != "total":
            found[words[-1]] = (float(words[3]), float(words[1]))
    return found


def show(title: str, entries: list[tuple[str, float, float]], most: int, *, summed: bool = True) -> None:
    """Print the dearest entries, and the sum of all where none is part of another."""
    print(f"\n{title}\n{'µs/step':>10} {'times/step':>10}")
    for name, times, microseconds in entries[:most]:
        print(f"{microseconds:10.1f} {times:10.2f}  {name}")
    if summed:
        print(f"{sum(entry[2] for entry in entries):10.1f} {sum(entry[1] for entry in entries):10.2f}  all of them")


def profile_functions(workplace: Workplace, shape: str, steps: int, durable: bool, most: int) -> None:
    """Processor time per function."""
    samples: dict[int, Sample] = {}
    files: dict[int, Path] = {}
    for size in (SMALL, SMALL + steps):
        command = shapes.marin(shape, size, durable=durable)
        files[size] = workplace.folder / f"stats-{size}"
        samples[size] = workplace.measure(replace(command, argv=program("profiled.py", files[size], *command.argv[1:])))
    small, large = files.values()
    for title, cumulative in (("its own", False), ("with what it calls", True)):
        entries = per_step(functions(large, cumulative=cumulative), functions(small, cumulative=cumulative), steps)
        show(f"processor time of each function, {title}, under the profiler", entries, most, summed=not cumulative)
    for said, what in (("gave_way", "waits (voluntary switches)"), ("taken_away", "taken off the processor")):
        difference = samples[SMALL + steps].said[said] - samples[SMALL].said[said]
        print(f"{number(difference / steps)} {what} per step, under the profiler")


def profile_system_calls(workplace: Workplace, shape: str, steps: int, durable: bool, most: int) -> None:
    """System calls by strace, of the whole process."""
    counts: dict[int, Counts] = {}
    for size in (SMALL, SMALL + steps):
        command = shapes.marin(shape, size, durable=durable)
        table = workplace.folder / f"strace-{size}"
        workplace.measure(replace(command, argv=("strace", "-f", "-c", "-o", str(table), *command.argv)))
        counts[size] = system_calls(table.read_text(encoding="utf-8"))
    show("system calls, time in the kernel", per_step(counts[SMALL + steps], counts[SMALL], steps), most)


def compare_threads(workplace: Workplace, shape: str, steps: int, durable: bool) -> None:
    """The same run unprofiled, on all processors and tied to one, where threads never wait for one another's core."""
    print("\nunprofiled, per step")
    for label, prefix in (("all cores", ()), ("one core", ("taskset", "-c", "0"))):
        if prefix and shutil.which(prefix[0]) is None:
            continue
        samples = [_least(workplace, shapes.marin(shape, size, durable=durable), prefix) for size in (1, 1 + steps)]
        wall, cpu = ((samples[1][part] - samples[0][part]) / steps * 1e6 for part in (0, 1))
        print(f"{wall:10.0f} µs by the clock {cpu:10.0f} µs of processors, {label}")


def _least(workplace: Workplace, command: Command, prefix: tuple[str, ...]) -> tuple[float, float]:
    samples = [workplace.measure(replace(command, argv=(*prefix, *command.argv))) for _ in range(3)]
    return min(sample.seconds for sample in samples), min(sample.cpu_seconds for sample in samples)


def main() -> int:
    """0, or 2 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_run", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--shape", choices=("independent", "chain"), default="independent")
    parser.add_argument("--durable", action="store_true", help="force everything onto the disk, as is the default")
    parser.add_argument("--most", type=int, default=40, help="how many lines of each table are shown")
    parser.add_argument("--scratch", type=Path, help="where stores are made")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the stores are removed
    scratch = Path(tempfile.mkdtemp(prefix="marin-profile-", dir=given.scratch))
    try:
        workplace = Workplace(scratch, os.environ)
        compare_threads(workplace, given.shape, given.steps, given.durable)
        profile_functions(workplace, given.shape, given.steps, given.durable, given.most)
        if shutil.which("strace") is None:
            print("\nsystem calls: not counted here, strace is not installed")
        else:
            profile_system_calls(workplace, given.shape, given.steps, given.durable, given.most)
    except BenchmarkError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
