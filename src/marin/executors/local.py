"""Runs jobs as processes of this machine, each in a session of its own and with a guard."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marin.errors import DeviceNotFoundError, StepError, StoreError
from marin.executors import guard
from marin.executors.executor import RUNNING, EndReason, JobSpec, JobState
from marin.executors.resources import ResourceConfig

_REASONS: dict[bytes, EndReason] = {guard.CANCELLED: "cancelled", guard.EXPIRED: "expired"}

_WAIT_SLICE_SECONDS = 0.5
"""How often ``wait`` looks by itself, should the end of a job not wake it."""

_UNRESPONSIVE_SECONDS = 15.0
"""How long after the grace a guard may take. Then somebody has stopped it, and it is killed with its session."""


@dataclass(slots=True)
class _Job:
    process: subprocess.Popen[bytes]
    lease: int
    status: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    kill_at: float = float("inf")
    end: JobState | None = None


class LocalExecutor:
    """Runs jobs on this machine. See ``Executor`` for what it promises.

    ``devices`` is where the device files lie, and ``environ`` tells which of them are hidden.
    """

    def __init__(self, *, devices: Path = Path("/dev"), environ: Mapping[str, str] = os.environ) -> None:
        self._devices = devices
        self._environ = environ
        self._jobs: dict[str, _Job] = {}
        self._numbers = itertools.count(1)

    def preflight(self, resources: ResourceConfig) -> None:
        device = resources.device
        if device.kind == "cpu":
            return
        count = self._count_gpus() if device.kind == "cuda" else self._count_tpus()
        if count == 0:
            hidden = self._environ.get("CUDA_VISIBLE_DEVICES") if device.kind == "cuda" else None
            why = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden!r} hides them)"
            raise DeviceNotFoundError(
                f"{device}: no such device in this machine{why}. Use resources='cpu', or run it where one is"
            )
        if device.index is not None and device.index >= count:
            known = ", ".join(f"{device.kind}:{index}" for index in range(count))
            raise DeviceNotFoundError(f"{device}: this machine has only {known}")

    def submit(self, spec: JobSpec) -> str:
        # The ends that stay here are not inherited by later jobs: Python opens them close-on-exec.
        lease_read, lease_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            process = _start_guard(spec, lease_read, status_write)
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
        self._jobs[job] = _Job(process=process, lease=lease_write, status=status_read)
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

    def _count_gpus(self) -> int:
        visible = self._environ.get("CUDA_VISIBLE_DEVICES")
        present = sum(bool(re.fullmatch(r"nvidia\d+", entry.name)) for entry in self._list("."))
        if visible is None or present == 0:
            return present
        # CUDA ignores what follows a negative index. Ids of GPUs and of slices of them are counted as they are.
        names = [name.strip() for name in visible.split(",")]
        shown = list(itertools.takewhile(lambda name: name != "" and not name.startswith("-"), names))
        return len(shown)

    def _count_tpus(self) -> int:
        old = sum(bool(re.fullmatch(r"accel\d+", entry.name)) for entry in self._list("."))
        return old or sum(entry.name.isdigit() for entry in self._list("vfio"))

    def _list(self, folder: str) -> list[Path]:
        try:
            return list((self._devices / folder).iterdir())
        except OSError:
            return []


def _start_guard(spec: JobSpec, lease: int, status: int) -> subprocess.Popen[bytes]:
    deadline = time.monotonic() + spec.lease_seconds
    argv = [sys.executable, "-I", "-S", guard.__file__, str(lease), str(status), repr(deadline), *spec.argv]
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
                env=dict(spec.env),
                cwd=spec.cwd,
                pass_fds=(lease, status),
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
