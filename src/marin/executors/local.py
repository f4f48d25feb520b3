"""Runs jobs as processes of this machine, each in a session of its own and with a guard."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin.errors import NotEnoughResourcesError, StepError, StoreError
from marin.executors import guard
from marin.executors.capacity import Capacity
from marin.executors.devices import LocalDevices, default_locks
from marin.executors.executor import RUNNING, Busy, Claim, EndReason, JobSpec, JobState
from marin.executors.leftovers import end_processes
from marin.executors.machine import count_cpus, count_memory
from marin.executors.quantities import show_size
from marin.executors.resources import ResourceConfig

_REASONS: dict[bytes, EndReason] = {guard.CANCELLED: "cancelled", guard.EXPIRED: "expired"}

_GUARD = "import sys; sys.path.append(sys.argv.pop(1)); import guard; guard.main(sys.argv[1:])"
"""Runs ``guard.py`` as a script would, but from the bytecode that Python keeps of a module."""

_WAIT_SLICE_SECONDS = 0.5
"""How often ``wait`` looks by itself, should the end of a job not wake it."""

JOB_VARIABLE = "MARIN_JOB"
"""By this the processes of a job are known, whatever session they have."""

_UNRESPONSIVE_SECONDS = 15.0
"""How long after the grace a guard may take. Then somebody has stopped it, and it is killed with its session."""


@dataclass(slots=True)
class _Job:
    process: subprocess.Popen[bytes]
    lease: int
    status: int
    token: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    kill_at: float = float("inf")
    end: JobState | None = None


class LocalExecutor:
    """Runs jobs on this machine. See ``Executor`` for what it promises.

    ``devices`` is where the device files lie, ``proc`` where their drivers tell of them, and ``environ`` says which
    are hidden. ``locks`` is the folder in which devices are locked, ``capacity`` what the machine has; both are found
    out if they are left out.
    """

    def __init__(
        self,
        *,
        devices: Path = Path("/dev"),
        proc: Path = Path("/proc"),
        environ: Mapping[str, str] = os.environ,
        locks: Path | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        self._devices = LocalDevices(devices=devices, proc=proc, environ=environ, locks=locks or default_locks())
        self._capacity = capacity
        self._jobs: dict[str, _Job] = {}
        self._numbers = itertools.count(1)

    def preflight(self, resources: ResourceConfig) -> None:
        self._devices.check(resources)
        machine = self.capacity()
        lacking: list[str] = []
        if resources.gpus > machine.gpus:
            lacking.append(f"gpus={resources.gpus}, and this machine has {machine.gpus}")
        if resources.cpus > machine.cpus:
            lacking.append(f"cpus={resources.cpus:g}, and this machine has {machine.cpus:g}")
        if machine.memory is not None and (resources.memory or 0) > machine.memory:
            lacking.append(
                f"memory={show_size(resources.memory or 0)}, and this machine has {show_size(machine.memory)}"
            )
        if lacking:
            raise NotEnoughResourcesError(f"asks for {'; '.join(lacking)}. Ask for less, or use a larger machine")

    def capacity(self) -> Capacity:
        if self._capacity is None:
            self._capacity = Capacity(
                cpus=count_cpus(),
                memory=count_memory(),
                gpus=self._devices.count_gpus(),
                tpu=self._devices.count_tpu_chips() > 0,
            )
        return self._capacity

    def claim(self, resources: ResourceConfig, preferred: Iterable[int] = ()) -> Claim | Busy:
        return self._devices.claim(resources, preferred)

    def submit(self, spec: JobSpec) -> str:
        # The ends that stay here are not inherited by later jobs: Python opens them close-on-exec.
        token = os.urandom(8).hex()
        lease_read, lease_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            process = _start_guard(spec, lease_read, status_write, token)
        except BaseException:
            os.close(lease_write)
            os.close(status_read)
            raise
        finally:
            os.close(lease_read)
            os.close(status_write)
        # A guard that does not read must not block the thread that renews.
        os.set_blocking(lease_write, False)
        os.set_blocking(status_read, False)
        job = f"{process.pid}-{next(self._numbers)}"
        self._jobs[job] = _Job(process=process, lease=lease_write, status=status_read, token=token)
        return job

    def poll(self, job: str) -> JobState:
        entry = self._entry(job)
        with entry.lock:
            if entry.end is None:
                if time.monotonic() > entry.kill_at:
                    guard.kill_session(entry.process.pid)
                if _has_ended(entry.process.pid):
                    entry.end = _collect(entry)
            return entry.end or RUNNING

    def renew(self, job: str, seconds: float) -> None:
        self._tell(self._entry(job), guard.RENEW, time.monotonic() + seconds)

    def cancel(self, job: str, grace_seconds: float) -> None:
        entry = self._entry(job)
        deadline = time.monotonic() + grace_seconds
        entry.kill_at = min(entry.kill_at, deadline + _UNRESPONSIVE_SECONDS)
        self._tell(entry, guard.CANCEL, deadline)

    def wait(self, job: str, timeout: float) -> JobState:
        entry = self._entry(job)
        give_up_at = time.monotonic() + timeout
        poller = select.poll()
        poller.register(entry.status, select.POLLIN)
        while (state := self.poll(job)).running and (left := give_up_at - time.monotonic()) > 0:
            # Once another thread has seen the end, the descriptor is closed, or another one: the slice bounds that.
            poller.poll(min(left, _WAIT_SLICE_SECONDS) * 1000)
        return state

    def _entry(self, job: str) -> _Job:
        try:
            return self._jobs[job]
        except KeyError:
            raise LookupError(f"job {job!r} was not submitted through this executor") from None

    def _tell(self, entry: _Job, kind: bytes, deadline: float) -> None:
        with entry.lock:
            if entry.end is None:
                # The job has ended, or its guard is stopped: poll sees to both.
                with contextlib.suppress(BrokenPipeError, BlockingIOError):
                    os.write(entry.lease, guard.MESSAGE.pack(kind, deadline))


def _start_guard(spec: JobSpec, lease: int, status: int, token: str) -> subprocess.Popen[bytes]:
    deadline = time.monotonic() + spec.lease_seconds
    held = ",".join(map(str, spec.claim.descriptors))
    log_path = os.path.abspath(spec.log_path)
    argv = [sys.executable, "-I", "-S", "-c", _GUARD, os.path.dirname(guard.__file__)]
    argv += [str(lease), str(status), repr(deadline), held]
    argv += [log_path, str(spec.log_bytes), *spec.argv]
    try:
        Path(spec.log_path).parent.mkdir(parents=True, exist_ok=True)
        log = open(spec.log_path, "ab")  # noqa: SIM115  # closed below, whatever happens
    except OSError as fault:
        raise StoreError(f"{spec.name}: its log {spec.log_path} can't be written: {fault.strerror}") from fault
    with log:
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**spec.env, JOB_VARIABLE: token},
                cwd=spec.cwd,
                pass_fds=(lease, status, *spec.claim.descriptors),
                start_new_session=True,
            )
        except OSError as fault:
            raise StepError(f"{spec.name}: no process can be started in {spec.cwd}: {fault.strerror}") from fault


def _has_ended(pid: int) -> bool:
    """Whether it has ended. Its pid stays taken: what is left of its session can still be addressed."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # somebody else in this process has waited for it


def _collect(entry: _Job) -> JobState:
    """The end of a job whose guard has ended. Closes and reaps what belonged to it."""
    try:
        told = os.read(entry.status, guard.STATUS.size)
    except BlockingIOError:
        told = b""  # a forked child of ours keeps the pipe open
    if not told:
        guard.kill_session(entry.process.pid)  # the guard was killed and could not do it
        end_processes(JOB_VARIABLE, entry.token)  # those with a session of their own too
    entry.process.wait()
    os.close(entry.lease)
    os.close(entry.status)
    if not told:
        return JobState(running=False, signal=signal.SIGKILL, reason=None)
    unpacked: tuple[Any, ...] = guard.STATUS.unpack(told)
    status, reason = int(unpacked[0]), _REASONS.get(unpacked[1])
    if os.WIFSIGNALED(status):
        return JobState(running=False, signal=os.WTERMSIG(status), reason=reason)
    return JobState(running=False, exit_code=os.WEXITSTATUS(status), reason=reason)
