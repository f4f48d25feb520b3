"""Step functions for tests of steps that run in a process of their own."""

from __future__ import annotations

import atexit
import ctypes
import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, cast

from marin.errors import StorageFullError
from marin.execution.artifact import Artifact
from marin.execution.progress import report


@dataclass(frozen=True)
class Count(Artifact):
    value: float
    seen: str = ""


class PoemError(Exception):
    """Can be pickled, as most exceptions can."""


class StubbornError(Exception):
    """Can be pickled, but not unpickled."""

    def __init__(self, poem: str, line: int) -> None:
        super().__init__(f"{poem}:{line}")


class LockedError(Exception):
    """Can't be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def double(config: float) -> Count:
    return Count(value=config * 2)


def see(name: str) -> Count:
    seen = {
        "path": lambda: os.pathsep.join(sys.path),
        "folder": os.getcwd,
        "environment": lambda: repr(dict(os.environ)),
        "modules": lambda: " ".join(sys.modules),
    }
    return Count(value=1.5, seen=seen[name]())


def write(path: str) -> Count:
    Path(path, "poem.txt").write_text("roses")
    return Count(value=1)


def raise_error(kind: str) -> Count:
    print("about to fail")
    if kind == "exit":
        sys.exit("goodbye")
    errors: dict[str, Any] = {
        "poem": lambda: PoemError("no rhyme"),
        "stubborn": lambda: StubbornError("ode", 3),
        "locked": lambda: LockedError("locked up"),
        "huge": lambda: PoemError("x" * 5_000_000),
    }
    raise errors[kind]()


def open_too_much(_: Any) -> Count:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    files: list[Any] = []
    while True:
        files.append(Path(os.devnull).open())  # noqa: SIM115  # held by this list alone


def report_arrays(_: Any) -> Count:
    import numpy  # noqa: PLC0415  # a worker imports nothing heavy

    for number in numpy.arange(3):
        report(number, numpy.int64(3), "steps", cast(str, numpy.float32(0.5)))
    return Count(value=3)


def raise_odd_number(_: Any) -> Count:
    class Reason(IntEnum):
        NO_RHYME = 7

    raise OSError(Reason.NO_RHYME, "no rhyme")


def forget_modules(_: Any) -> Count:
    for name in [name for name in sys.modules if name.partition(".")[0] == "marin"]:
        del sys.modules[name]
    return Count(value=1)


OPEN: list[Any] = []


def write_late(config: dict[str, Any]) -> Count:
    """Flushed, written and changed when the process ends: after the step has returned."""
    out = Path(config["out"])
    unflushed = (out / "unflushed.txt").open("w")
    unflushed.write("rose")
    OPEN.append(unflushed)
    for number in range(config["files"]):
        (out / f"{number}.txt").write_text("vers")
    if config["files"]:
        atexit.register((out / "0.txt").write_text, "bone")  # of the same size
    atexit.register((out / "late.txt").write_text, "late")
    return Count(value=1)


def lose_path(how: str) -> Count:
    """Nothing that is not loaded can be imported any more, unless by one who knows the path as it was."""
    os.chdir("/")
    sys.path.clear()
    if how == "fail":
        raise PoemError("no rhyme")
    return Count(value=1)


def large(size: int) -> Count:
    return Count(value=size, seen="x" * size)


def segfault(_: Any) -> Count:
    print("so far so good")
    ctypes.string_at(0)
    return Count(value=0)


def segfault_in_thread(_: Any) -> Count:
    thread = threading.Thread(target=segfault, args=(None,))
    thread.start()
    thread.join()
    return Count(value=0)


def kill_self(number: int) -> Count:
    os.kill(os.getpid(), number)
    time.sleep(3600)
    return Count(value=0)


def exit_hard(code: int) -> Count:
    for number in range(30):
        print(f"line {number}")
    os._exit(code)


def sleep(seconds: float) -> Count:
    report(0, seconds, "s", "asleep")
    time.sleep(seconds)
    return Count(value=seconds)


def save_when_told(folder: str) -> Count:
    report(1)
    try:
        time.sleep(3600)
    except KeyboardInterrupt:
        Path(folder, "saved").write_text("half a poem")
        raise
    return Count(value=0)


def finish_when_told(_: Any) -> Count:
    report(1)
    try:
        time.sleep(3600)
    except KeyboardInterrupt:
        return Count(value=7)
    return Count(value=0)


def hold_the_lock(_: Any) -> Count:
    """Hold Python's global lock, deaf to everything."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(1)
    ctypes.PyDLL(None).sleep(3600)
    return Count(value=0)


def leave_shells(_: Any) -> Count:
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["setsid", "sh", "-c", "sleep 1000; echo late"])
    return Count(value=1)


def leave_thread(_: Any) -> Count:
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return Count(value=1)


def crash_at_exit(_: Any) -> Count:
    atexit.register(ctypes.string_at, 0)
    return Count(value=1)


def report_often(count: int) -> Count:
    for number in range(count + 1):
        report(number, count, "poems", f"poem {number}")
    return Count(value=count)


def stumble(config: dict[str, Any]) -> Count:
    """Fails in the way that ``config`` says at its first ``times`` calls. Counts them in a file, beside the store."""
    calls = Path(config["calls"])
    number = len(calls.read_text().split()) if calls.exists() else 0
    with calls.open("a") as file:
        file.write(f"{os.path.basename(config['output_path'])}\n")
    saved = Path(config["output_path"], "saved")
    seen = saved.read_text() if saved.exists() else ""
    saved.write_text(f"{seen}{number}")
    if number < config["times"]:
        print(f"stumbles, call {number}", flush=True)
        if config["how"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if config["how"] == "exit":
            os._exit(7)
        if config["how"] == "raise":
            raise PoemError(f"no rhyme in call {number}")
        if config["how"] == "full":
            fault = OSError(errno.ENOSPC, "No space left on device")
            fault.held = threading.Lock()  # type: ignore[attr-defined]  # not to be pickled, as on a disk that is full
            raise fault
        if config["how"] == "hang":
            time.sleep(1000)
    return Count(value=number, seen=seen)


def find_no_room(config: Any) -> Count:
    fault = StorageFullError("no room for the poem")
    fault.held = threading.Lock()  # type: ignore[attr-defined]  # not to be pickled
    raise fault
