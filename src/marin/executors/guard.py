"""The process between a run and a job: it starts the job, and sees to it that nothing of the job outlives it.

Run by the local executor as a script, ``python -I -S guard.py LEASE_FD STATUS_FD DEADLINE HELD_FDS COMMAND...``, and
never imported by the job. It is a process, not a thread inside the job, because then any command can be guarded, code
that holds Python's global lock for minutes delays nothing, and the job gets neither a file descriptor nor a thread nor
a signal handler that it did not ask for. HELD_FDS, joined by commas, lock the job's devices: it holds them while it
lives.

It ends the job, and everything that the job has started, when

- the job's main process has ended;
- the run is gone: the lease pipe is at its end, however the run died;
- the deadline has passed that the last message on the lease pipe has set: the run is alive, but silent. This is also
  the second guard where a forked child of the run has inherited the pipe and keeps its end away;
- it is told to cancel: SIGTERM to the job's process group, and the rest when the grace is over.

As a "child subreaper" (Linux) it becomes the parent of every orphan among the job's descendants, so that also a
process in a session of its own is found and reaped. Should the guard itself be killed, then the kernel kills the
job's main process (safe here: that signal comes when the *thread* that started a process ends, and the guard has only
one), and the executor kills the rest of the session.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import struct
import sys
import time
from types import FrameType

MESSAGE = struct.Struct("=cd")
"""On the lease pipe: RENEW or CANCEL, and the new deadline on the clock that all processes of a boot share."""
RENEW, CANCEL = b"R", b"C"

STATUS = struct.Struct("=ic")
"""On the status pipe, once all is over: the wait status of the job's main process, and why it was ended."""
ENDED, CANCELLED, EXPIRED, ABANDONED = b"E", b"C", b"X", b"A"

KILL_SECONDS = 10.0
"""How long to try to kill. Only a process that hangs in the kernel survives SIGKILL for longer."""

_FOR_THE_JOB = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ABANDONED_NOTE = {
    EXPIRED: "marin: ended this job, because its run has been silent for longer than its lease\n",
    ABANDONED: "marin: ended this job, because its run is gone\n",
}


def main(argv: list[str]) -> None:
    """Start the command and guard it until nothing of it is left."""
    lease, status_pipe, deadline = int(argv[0]), int(argv[1]), float(argv[2])
    held = [int(fd) for fd in argv[3].split(",") if fd]
    for fd in (lease, status_pipe, *held):
        os.set_inheritable(fd, False)
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    job = _start(argv[4:])
    reason, status = _watch(job, lease, wake, deadline)
    if reason in _ABANDONED_NOTE:
        os.write(2, _ABANDONED_NOTE[reason].encode())
    status = _end_all(job, status)
    with contextlib.suppress(BrokenPipeError):  # the run is gone: nobody asks how the job ended
        os.write(status_pipe, STATUS.pack(status, reason))
    os._exit(0)  # at once: who waits for the end has been woken


def kill_session(session: int) -> None:
    """SIGKILL every process of ``session``. For who finds its guard dead, and has not reaped it yet."""
    _quietly_kill(-session, signal.SIGKILL)
    give_up_at = time.monotonic() + KILL_SECONDS
    while members := [pid for pid, (_, of_session) in processes().items() if of_session == session]:
        for pid in members:
            _quietly_kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up_at:
            break


def processes() -> dict[int, tuple[int, int]]:
    """Every living process of this machine: its parent and its session. Empty where there is no ``/proc``."""
    found: dict[int, tuple[int, int]] = {}
    if not os.path.isdir("/proc/self"):
        return found
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # The name, in brackets, may contain anything; after it: state, parent, group, session.
                    fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    found[int(entry)] = int(fields[1]), int(fields[3])
            except (OSError, IndexError):
                continue  # it has ended meanwhile
    return found


def _wake_on_signals() -> int:
    """Turn SIGCHLD into a readable file descriptor, and be deaf to signals that are meant for the job."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _ignore)
    for number in _FOR_THE_JOB:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return read_end


def _ignore(number: int, frame: FrameType | None) -> None:
    """Unlike SIG_IGN it wakes, and leaves children to be waited for."""


def _start(command: list[str]) -> int:
    guard = os.getpid()
    # Held back, not lost: what is sent before the child stops ignoring it is delivered then.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_JOB)
    pid = os.fork()
    if pid == 0:
        _become(command, guard)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_JOB)
    with contextlib.suppress(OSError):  # it may run its command already
        os.setpgid(pid, pid)  # in both processes: whichever comes first
    return pid


def _become(command: list[str], guard: int) -> None:
    """Never returns."""
    try:
        os.setpgid(0, 0)
        for number in (*_FOR_THE_JOB, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_JOB)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:
            os.execvp(command[0], command)
    except OSError as fault:
        os.write(2, f"marin: can't start {command[0]!r}: {fault.strerror}\n".encode())
    finally:
        os._exit(127)


def _watch(job: int, lease: int, wake: int, deadline: float) -> tuple[bytes, int | None]:
    """Wait for a reason to end the job: the reason, and the status of its main process if that has ended."""
    cancelled = False
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([lease, wake], [], [], max(0.0, left))
        if wake in ready:
            os.read(wake, 4096)
            status = _reap(job)
            if status is not None:
                return (CANCELLED if cancelled else ENDED), status
        if lease in ready:
            messages = os.read(lease, MESSAGE.size * 64)
            if not messages:
                return ABANDONED, None
            for kind, until in MESSAGE.iter_unpack(messages):
                if kind == CANCEL:
                    deadline = min(deadline, until)
                    cancelled = True
                    _quietly_kill(-job, signal.SIGTERM)
                elif not cancelled:
                    deadline = until
        # A message that came in time counts, even if the whole machine was asleep when it should have been read.
        elif left <= 0:
            return (CANCELLED if cancelled else EXPIRED), None


def _reap(job: int) -> int | None:
    """Reap whatever has ended, orphans as well: the status of ``job`` if that is among it."""
    status: int | None = None
    while True:
        try:
            pid, of_pid = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == job:
            status = of_pid


def _end_all(job: int, status: int | None) -> int:
    """Kill and reap all descendants, until none is left: the status of ``job``."""
    give_up_at = time.monotonic() + KILL_SECONDS
    while time.monotonic() < give_up_at:
        ended = _reap(job)
        status = status if ended is None else ended
        try:
            # Asks whether a child is left, and leaves it as it is.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break
        _quietly_kill(-job, signal.SIGKILL)
        for pid in _descendants(os.getpid()):
            _quietly_kill(pid, signal.SIGKILL)
        time.sleep(0.001)
    return signal.SIGKILL if status is None else status


def _descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    frontier = [ancestor]
    while frontier:
        below = children.get(frontier.pop(), [])
        found += below
        frontier += below
    return found


def _quietly_kill(pid: int, number: int) -> None:
    # It may have ended meanwhile, or have become another user's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    """Does nothing where there is no such call: the process group and the session are killed there as well."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
