"""The process between a run and a job: it starts the job, and sees to it that nothing of the job outlives it.

Run by the local executor with ``python -I -S`` and the arguments LEASE_FD STATUS_FD DEADLINE HELD_FDS LOG LOG_BYTES
COMMAND..., and never imported by the job. So it is one file, longer than others, and uses nothing but Python's own
library: it has no way to find our packages, and starts in a moment.

It is a process, not a thread inside the job, because then any command can be guarded, code that holds Python's global
lock for minutes delays nothing, and the job gets neither a file descriptor nor a thread nor a signal handler that it
did not ask for. HELD_FDS, joined by commas, lock the job's devices: it holds them while it lives.

It ends the job, and everything that the job has started, when

- the job's main process has ended;
- the run is gone: the lease pipe is at its end, however the run died;
- the deadline has passed that the last message on the lease pipe has set: the run is alive, but silent. This is also
  the second guard where a forked child of the run has inherited the pipe and keeps its end away;
- it is told to cancel: SIGTERM to the job's process group, and the rest when the grace is over.

It also writes the log. All that the job prints comes through a pipe, so that a job that prints without end fills no
disk: see ``BoundedLog``. A full disk costs lines of the log, never the job. While the guard itself is stopped
(SIGSTOP), the job goes on until it has printed a mebibyte, and then waits for it.

As a "child subreaper" (Linux) it becomes the parent of every orphan among the job's descendants, so that also a
process in a session of its own is found and reaped. Should the guard itself be killed, then the kernel kills the
job's main process (safe here: that signal comes when the *thread* that started a process ends, and the guard has only
one), and the executor kills the rest of the session.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import sys
import time

# A job waits for these imports. The module signal gives its numbers names, which takes longer than all the others; and
# typing, collections and contextlib are as slow.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType
else:
    import _signal as signal

MESSAGE = struct.Struct("=cd")
"""On the lease pipe: RENEW or CANCEL, and the new deadline on the clock that all processes of a boot share."""
RENEW, CANCEL = b"R", b"C"

STATUS = struct.Struct("=ic")
"""On the status pipe, once all is over: the wait status of the job's main process, and why it was ended."""
ENDED, CANCELLED, EXPIRED, ABANDONED = b"E", b"C", b"X", b"A"

KILL_SECONDS = 10.0
"""How long to try to kill. Only a process that hangs in the kernel survives SIGKILL for longer."""

LOG_PARTS = 3
"""A log has at most so many files: its beginning, ``.0``; what was written last; and what came before that, ``.1``."""

SNAPSHOT_SECONDS = 5.0
"""How often a line that is rewritten all the time, such as a progress bar, is put into the log as it is."""

_PIPE_BYTES = 1 << 20
_MAX_HELD = 1 << 16
_F_SETPIPE_SZ = 1031

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
    log = BoundedLog(argv[4], int(argv[5]))
    held = [int(fd) for fd in argv[3].split(",") if fd]
    for fd in (lease, status_pipe, *held):
        os.set_inheritable(fd, False)
    wake = _wake_on_signals()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    job, output = _start(argv[6:])
    reason, status = _watch(job, output, log, lease, wake, deadline)
    status = _end_all(job, status)
    while _pump(output, log):
        pass  # the last words; nobody is left who could add to them
    log.close(_ABANDONED_NOTE.get(reason, "").encode())
    with _suppressed(BrokenPipeError):  # the run is gone: nobody asks how the job ended
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


def _start(command: list[str]) -> tuple[int, int]:
    """The pid of the job, and where to read what it prints."""
    guard = os.getpid()
    output, prints = os.pipe()
    os.set_blocking(output, False)
    if sys.platform == "linux":
        with _suppressed(OSError):  # the user's share of pipes may be used up
            fcntl.fcntl(prints, _F_SETPIPE_SZ, _PIPE_BYTES)
    # Held back, not lost: what is sent before the child stops ignoring it is delivered then.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_JOB)
    pid = os.fork()
    if pid == 0:
        _become(command, guard, prints)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_JOB)
    os.close(prints)
    with _suppressed(OSError):  # it may run its command already
        os.setpgid(pid, pid)  # in both processes: whichever comes first
    return pid, output


def _become(command: list[str], guard: int, prints: int) -> None:
    """Never returns."""
    try:
        os.dup2(prints, 1)
        os.dup2(prints, 2)
        os.setpgid(0, 0)
        for number in (*_FOR_THE_JOB, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_JOB)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == guard:
            os.execvp(command[0], command)
    except OSError as fault:
        os.write(2, f"marin: can't start {command[0]!r}: {fault.strerror}\n".encode())
    finally:
        os._exit(127)


def _watch(job: int, output: int, log: BoundedLog, lease: int, wake: int, deadline: float) -> tuple[bytes, int | None]:
    """Wait for a reason to end the job: the reason, and the status of its main process if that has ended."""
    cancelled = False
    sources = [lease, wake, output]
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select(sources, [], [], max(0.0, min(left, log.due_in())))
        if output in ready and not _pump(output, log):
            sources.remove(output)  # nobody can print any more
        log.snapshot()
        if wake in ready:
            os.read(wake, 4096)
            status = _reap(job)
            if status is not None:
                return (CANCELLED if cancelled else ENDED), status
        if lease in ready:
            messages = os.read(lease, MESSAGE.size * 64)
            if not messages:
                return ABANDONED, None
            deadline, cancelled = _obey(messages, job, deadline, cancelled=cancelled)
        # A message that came in time counts, even if the whole machine was asleep when it should have been read.
        elif left <= 0:
            return (CANCELLED if cancelled else EXPIRED), None


def _obey(messages: bytes, job: int, deadline: float, *, cancelled: bool) -> tuple[float, bool]:
    """The deadline after ``messages``, and whether the job has been told to end."""
    for kind, until in MESSAGE.iter_unpack(messages):
        if kind == CANCEL:
            deadline = min(deadline, until)
            cancelled = True
            _quietly_kill(-job, signal.SIGTERM)
        elif not cancelled:
            deadline = until
    return deadline, cancelled


def _pump(output: int, log: BoundedLog) -> bool:
    """Write into the log what can be read. False: there is nothing now, or nothing will come any more."""
    try:
        printed = os.read(output, _PIPE_BYTES)
    except BlockingIOError:
        return False
    if printed:
        log.write(printed)
    return bool(printed)


class BoundedLog:
    """A log that takes at most ``limit`` bytes of the disk, however much is printed.

    Three files of a third of that: ``path`` has what was printed last, ``path.1`` what came before, ``path.0`` the
    beginning. What is between ``.0`` and ``.1`` is dropped. A line that is rewritten by carriage returns is kept as a
    terminal would show it in the end, and on the way once every few seconds.
    """

    def __init__(self, path: str, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._part = max(limit // LOG_PARTS, 1)
        self._clock = clock
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._size = os.fstat(self._file).st_size
        self._line_is_open = False
        self._held = b""  # the rewritten line, as it is now
        self._held_since = 0.0
        self._unwritten = b""  # what did not find room on the disk, its end
        self._lost = 0

    def write(self, printed: bytes) -> None:
        """Never raises, and never waits for anything but the disk."""
        if self._held or b"\r" in printed:
            printed = self._collapse(printed)
        if printed:
            self._put(printed)

    def due_in(self) -> float:
        """Seconds until ``snapshot`` has something to do."""
        return max(0.0, self._held_since + SNAPSHOT_SECONDS - self._clock()) if self._held else float("inf")

    def snapshot(self) -> None:
        """Put a line that is being rewritten into the log, if it is time to."""
        if self._held and self.due_in() == 0:
            held, self._held = self._held, b""
            self._put(held.rstrip(b"\r") + b"\n")

    def close(self, note: bytes = b"") -> None:
        """Write what was held back, and ``note`` on a line of its own."""
        held, self._held = self._held, b""
        self._put(held)
        if note:
            self._put((b"\n" if self._line_is_open else b"") + note)
        os.close(self._file)

    def _collapse(self, printed: bytes) -> bytes:
        *lines, rest = (self._held + printed).split(b"\n")
        # What stands in the log already can't be taken back: what replaces it goes on a line of its own.
        first = lines[0] if lines else rest
        begin = b"\n" if self._line_is_open and b"\r" in first.rstrip(b"\r") else b""
        rewritten = b"\r" in rest
        whole = b"".join(_final(line) + b"\n" for line in lines)
        rest = _final(rest)
        if not rewritten or len(rest) > _MAX_HELD:
            self._held = b""
            return begin + whole + rest if whole or rest else b""
        if not self._held:
            self._held_since = self._clock()
        if begin and not whole:
            self._put(begin)
            begin = b""
        self._held = rest
        return begin + whole if whole else b""

    def _put(self, text: bytes) -> None:
        if self._unwritten:
            note = f"\nmarin: {self._lost} bytes of output found no room on the disk; they ended with:\n".encode()
            if self._append(note + self._unwritten):
                self._lost += len(text)
                self._unwritten = (self._unwritten + text)[-_MAX_HELD:]
                return
            self._unwritten, self._lost = b"", 0
        if left := self._append(text):
            self._lost += len(left)
            self._unwritten = left[-_MAX_HELD:]

    def _append(self, text: bytes) -> bytes:
        """What of ``text`` found no room."""
        while text:
            if self._size >= self._part:
                self._rotate()
            piece = text[: max(self._part - self._size, 1)]
            # A new part begins with a new line, if there are lines.
            cut = piece.rfind(b"\n") + 1 if len(piece) < len(text) else 0
            if len(piece) < len(text) <= self._part // 2 and not cut and not self._line_is_open:
                self._size = self._part
                continue
            piece = piece[:cut] if cut else piece
            try:
                written = os.write(self._file, piece)
            except OSError:
                return text
            self._size = self._part if cut and written == cut else self._size + written
            self._line_is_open = not piece[:written].endswith(b"\n")
            text = text[written:]
        return b""

    def _rotate(self) -> None:
        older = f"{self._path}.1" if os.path.exists(f"{self._path}.0") else f"{self._path}.0"
        try:
            os.replace(self._path, older)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.close(self._file)
            self._file = file
        except OSError:  # somebody has removed the folder, or made it read-only: what we have open can be emptied
            with _suppressed(OSError):
                os.ftruncate(self._file, 0)
        name = os.path.basename(self._path)
        before = f"{name}.0" if older.endswith(".0") else f"{name}.1, and its beginning is in {name}.0"
        note = f"marin: this log is long: what came before is in {before}\n".encode()
        self._size = 0
        with _suppressed(OSError):
            self._size = os.write(self._file, note) if len(note) < self._part // 2 else 0


class _suppressed:  # reads as the statement that it is
    """Ends its block quietly at these exceptions."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def _final(line: bytes) -> bytes:
    """What a terminal shows of ``line`` in the end: what follows its last carriage return but those that end it."""
    return line[line.rstrip(b"\r").rfind(b"\r") + 1 :]


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
    with _suppressed(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    """Does nothing where there is no such call: the process group and the session are killed there as well."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
