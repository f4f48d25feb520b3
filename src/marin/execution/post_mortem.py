"""Why a process died that could not say so itself: from its exit, its log, and the kernel's count of such ends."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from marin.errors import LeaseLostError, StepError, StepInterruptedError, WorkerDiedError
from marin.execution.failure import Failure, is_user_code, shortened, shown_frame
from marin.execution.logs import read_log_end
from marin.executors.executor import JobState

TAIL_LINES = 20
_TAIL_BYTES = 64 * 1024
_LINE_CHARACTERS = 500
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CGROUPS = Path("/sys/fs/cgroup")

# All threads are listed, the one that crashed among them and not always first.
_CRASH = re.compile(r"Fatal Python error: .*?^Current thread .*?\n((?:  .*\n?)+)", re.DOTALL | re.MULTILINE)
_CRASH_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)

_SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "native code touched memory that is not there",
    signal.SIGBUS: "memory that lies in a file is gone: the disk or /dev/shm may be full",
    signal.SIGABRT: "native code gave up; it usually says why in the log",
    signal.SIGILL: "native code was built for another processor",
    signal.SIGFPE: "native code divided by zero",
    signal.SIGTERM: "somebody outside told it to end",
    signal.SIGINT: "somebody outside told it to end",
    signal.SIGXCPU: "its limit of processor time (ulimit -t) was reached",
}


def explain_death(
    name: str, state: JobState, *, log: str, log_path: str, oom_kills: int | None, is_folder_gone: bool = False
) -> StepError:
    """The error for a process that ended without an answer.

    ``log`` is what this process wrote; ``oom_kills``: how often the kernel has killed for want of memory meanwhile,
    None if it does not tell; ``is_folder_gone``: what it might have answered was removed. The
    error's ``Failure`` has the Python frame of a crash, if the log shows one.
    """
    frame = crash_frame(log)
    tail = "\n".join(_shown(line) for line in log.splitlines()[-TAIL_LINES:])
    kind: type[StepError] = WorkerDiedError
    if state.reason == "cancelled":
        kind, reason = StepInterruptedError, "was told to stop, and ended without an answer"
    elif state.reason == "expired":
        kind, reason = LeaseLostError, "was ended, because this run was silent for longer than its lease"
    elif is_folder_gone:
        reason = "ended, and its job folder was removed by somebody: how the step ended is not known"
    elif state.signal is not None:
        reason = _explain_signal(state.signal, oom_kills) + (f"; at {frame}" if frame else "")
    elif state.exit_code == 127:
        reason = "could not be started, or ended with exit code 127"
    elif state.exit_code == 1:
        reason = "ended with exit code 1 and without an answer: it could not begin or end its work, or called os._exit"
    else:
        reason = f"ended with exit code {state.exit_code} in the middle of the step: something in it called os._exit"
    ending = f"Its log {log_path} ends with:\n{tail}" if tail.strip() else f"Its log {log_path} is empty"
    message = f"{name}: its process {reason}\n{ending}"
    failure = Failure(error=kind.__name__, message=message, frame=frame, traceback=message)
    return failure.carried_by(kind(message))


def _shown(line: str) -> str:
    """``line`` as it can stand in a message, whatever a step has printed."""
    return shortened(_UNPRINTABLE.sub("?", line), _LINE_CHARACTERS)


def crash_frame(log: str) -> str:
    """The innermost frame of the user's code in a crash that Python itself has reported in ``log``; empty if none."""
    crash = _CRASH.search(log)
    frames = [] if crash is None else _CRASH_FRAME.findall(crash[1])
    chosen = next((frame for frame in frames if is_user_code(frame[0])), frames[0] if frames else None)
    return "" if chosen is None else shown_frame(chosen[0], int(chosen[1]), chosen[2])


def read_log(log_path: str, start: int) -> str:
    """What was printed since the log was ``start`` bytes long; of that, the last 64 KiB."""
    return read_log_end(log_path, start, _TAIL_BYTES)


def count_oom_kills(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """How many processes of our control group the kernel has killed for want of memory; None if it can't be read."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            file = cgroups / group.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            file = cgroups / "memory" / group.lstrip("/") / "memory.oom_control"
        else:
            continue
        try:
            counted = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
        except OSError:
            continue
        if counted is not None:
            return int(counted[1])
    return None


def _explain_signal(number: int, oom_kills: int | None) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"  # a real-time signal
    if number != signal.SIGKILL:
        return f"was ended by {name}" + (f": {_SIGNALS[number]}" if number in _SIGNALS else "")
    if oom_kills:
        return f"was ended by {name}: the kernel ran out of memory. Give the step less to hold at once, or more memory"
    if oom_kills == 0:
        return (
            f"was ended by {name} from outside; the kernel did not report that memory ran out in our control group "
            "(if the step ran in another one, 'dmesg | grep -i oom' tells)"
        )
    return (
        f"was ended by {name}: from outside, or by the kernel because memory ran out; "
        "'dmesg | grep -i oom' or the cluster's monitor tells"
    )
