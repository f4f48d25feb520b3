"""Who holds a lease, and whether they are still there: never judged by comparing clocks."""

from __future__ import annotations

import functools
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Owner:
    """One process, so that another one can tell whether it still lives.

    ``started`` is in clock ticks since boot, 0 where it can't be known: with it a process number that is used again
    is not mistaken for its earlier bearer. Empty texts: not known.
    """

    host: str
    user: str
    pid: int
    started: int
    machine_id: str
    boot_id: str
    pid_namespace: str


def this_process() -> Owner:
    """The process that calls; in a forked child, the child."""
    return _describe_process(os.getpid())


@functools.lru_cache(maxsize=1)  # asked for with every lease, and the answer stays; a forked child has another number
def _describe_process(pid: int) -> Owner:
    state = _process_state(pid)
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        user = f"uid {os.getuid()}"
    return Owner(
        host=os.uname().nodename,
        user=user,
        pid=pid,
        started=state[1] if state else 0,
        machine_id=_first_line("/etc/machine-id"),
        boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
    )


def is_dead_here(owner: Owner) -> bool:
    """True only if it is certain, from this machine, that the owner has ended. False: it lives, or can't be known."""
    here = this_process()
    if not _is_same_machine(owner, here):
        return False
    if owner.boot_id != here.boot_id:
        # The machine has been started anew. Without an id of its own it may be another one of the same name.
        return here.machine_id != ""
    if not _sees_processes_of(owner, here):
        return False
    try:
        os.kill(owner.pid, 0)  # sees processes that /proc may hide from us
    except ProcessLookupError:
        return True
    except OSError:
        pass
    state = _process_state(owner.pid)
    if state is None:
        return False
    letter, started = state
    if owner.started and started != owner.started:
        return True
    return letter in "ZX" and not _has_live_threads(owner.pid)


def is_alive_here(owner: Owner) -> bool:
    """True only if it is certain, from this machine, that the owner lives. False: it has ended, or can't be known."""
    here = this_process()
    if not _is_same_machine(owner, here) or owner.boot_id != here.boot_id or not _sees_processes_of(owner, here):
        return False
    state = _process_state(owner.pid)
    return state is not None and bool(owner.started) and not is_dead_here(owner)


def _is_same_machine(owner: Owner, here: Owner) -> bool:
    same = owner.host == here.host and owner.machine_id == here.machine_id
    return same and bool(owner.boot_id) and bool(here.boot_id)


def _sees_processes_of(owner: Owner, here: Owner) -> bool:
    return bool(here.pid_namespace) and owner.pid_namespace == here.pid_namespace


def describe(owner: Owner) -> str:
    """How messages name the owner: ``pid 123 of anna on node7``."""
    return f"pid {owner.pid} of {owner.user} on {owner.host}"


class SilenceWatch:
    """Tells when somebody has been silent for too long, on the watcher's own clock.

    What is watched is a token that the other side changes to show that it lives, such as its record's bytes.

    >>> now = 0.0
    >>> watch = SilenceWatch(clock=lambda: now)
    >>> watch.expired(b"heartbeat 1", ttl=90.0)
    False
    >>> now = 100.0
    >>> watch.expired(b"heartbeat 1", ttl=90.0), watch.expired(b"heartbeat 2", ttl=90.0)
    (True, False)
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[bytes, float] | None = None

    def expired(self, token: bytes, ttl: float) -> bool:
        """Whether this same token has been seen for at least ``ttl`` seconds, from the first call that had it."""
        now = self._clock()
        if self._seen is None or self._seen[0] != token:
            self._seen = (token, now)
        return now - self._seen[1] >= ttl


def _process_state(pid: int) -> tuple[str, int] | None:
    """The state's letter and the start in ticks since boot. None where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("ascii", "replace")
    except OSError:
        return None
    # The program's name comes first, in brackets, and may hold spaces and brackets itself.
    fields = text[text.rfind(")") + 1 :].split()
    return (fields[0], int(fields[19])) if len(fields) > 19 else None


def _has_live_threads(pid: int) -> bool:
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except (OSError, ValueError):
        return ""
