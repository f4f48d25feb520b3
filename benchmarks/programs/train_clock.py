"""When steps end, as each program of a training notes it, and what is said of that.

A step is noted when its loss is known, or where a tool calls back at its end. Times are those since the machine was
started, so that a process and the one that it trains in agree; the start of a process is what the kernel noted.
"""

import itertools
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from typing import ClassVar


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def process_start():
    with open("/proc/self/stat", "rb") as stat:
        # The name in parentheses may hold anything: the fields begin behind the last one.
        return int(stat.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


class Clock:
    """``stamps``: for each step the time, the processor time of the process, and what the host did beside the steps."""

    def __init__(self):
        self.began = process_start()
        self.stamps = []
        self.host = self.host_cpu = 0.0

    def step_done(self):
        self.stamps.append((now(), time.process_time(), self.host, self.host_cpu))

    def timed(self, function):
        """``function``, whose time is the host's: gathering batches, writing down metrics."""

        def timing(*args, **kwargs):
            begun, cpu_begun = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.host += time.perf_counter() - begun
                self.host_cpu += time.thread_time() - cpu_begun

        return timing

    def say(self, case):
        print(f"measured: {json.dumps(said(self.began, self.stamps, case))}")


def said(began, stamps, case, started_cpu=0.0):
    """First step, beyond the ``skipped`` steps the whole window and the middle step, and what a save takes.

    ``started_cpu``: processor time of the process that started the one that trains.
    """
    assert len(stamps) == case["steps"], f"{len(stamps)} steps were noted where {case['steps']} were due"
    times = [stamp[0] for stamp in stamps]
    first, last = stamps[case["skipped"] - 1], stamps[-1]
    seconds = [after - before for before, after in itertools.pairwise(times)]
    found = {
        "first_step": times[0] - began,
        "first_step_cpu": stamps[0][1] + started_cpu,
        "window": last[0] - first[0],
        "window_cpu": last[1] - first[1],
        "host": last[2] - first[2],
        "host_cpu": last[3] - first[3],
        "step": statistics.median(seconds[case["skipped"] - 1 :]),
    }
    if case["save_every"] and 2 * case["save_every"] <= case["steps"]:
        found["save_delay"] = save_delay(seconds, case["save_every"])
    return found


def save_delay(seconds, every):
    """How much longer the first half of the steps behind a save takes than the second half, in the middle of all saves.

    ``seconds[i]`` is what step ``i + 2`` took. The first save is left out: what is only done once is no delay.
    """
    half = every // 2
    found = [
        sum(seconds[start : start + half]) - sum(seconds[start + half : start + 2 * half])
        for start in range(2 * every - 1, len(seconds) - 2 * half + 1, every)
    ]
    return statistics.median(found)


@dataclass(frozen=True, kw_only=True)
class ClockConfig:
    """A tracker of Marin that notes the steps of the process that trains, and writes them to ``path``."""

    tracker: ClassVar[str] = "train_clock:open_clock"

    path: str


class MarinClock:
    def __init__(self, path):
        self._path, self._clock = path, Clock()

    def start(self):
        # Rows come to trackers a second late, and what the loop does beside the steps is asked for too.
        from marin.processing.mixture.batches import TrainingData  # noqa: PLC0415  # the program that trains has it
        from marin.training import loop  # noqa: PLC0415
        from marin.training.memory import MemoryMeter  # noqa: PLC0415
        from marin.training.metrics import MetricsLog  # noqa: PLC0415
        from marin.training.placement import Placement  # noqa: PLC0415
        from marin.training.trackers.running import Trackers  # noqa: PLC0415

        for owner, name in (
            (TrainingData, "batch"),
            (Placement, "put_rows"),
            (MemoryMeter, "read"),
            (MetricsLog, "write"),
            (Trackers, "log"),
            (loop, "report"),
        ):
            setattr(owner, name, self._clock.timed(getattr(owner, name)))
        write = MetricsLog.write

        def noting(log, row):
            if "loss" in row:
                self._clock.step_done()
            write(log, row)

        MetricsLog.write = noting

    def log(self, row):
        pass

    def close(self):
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(self._clock.stamps, file)


def open_clock(config, run):
    clock = MarinClock(config.path)
    clock.start()
    return clock


def arguments():
    """Of each program here: the case, the folder of ids, the folder to work in, and what to do there."""
    case, ids, store, action = sys.argv[1:]
    case = json.loads(case)
    return case, f"{ids}/{case['vocab_size']}", store, action
