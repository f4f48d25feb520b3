"""What an executor is: something that runs an opaque command elsewhere and sees to its end.

Nothing here knows what a step is. An executor is right when it passes ``tests/executors/contract.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from marin.executors.capacity import Capacity
from marin.executors.resources import ResourceConfig

LOG_BYTES = 64 << 20
"""How much of the disk the log of one job takes at most, unless somebody says otherwise."""

EndReason = Literal["cancelled", "expired"]
"""Why the executor itself ended a job: it was told to, or the job was not renewed in time."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Devices that one job has to itself until ``release``, or until all processes that know of it have ended.

    ``env`` is for the job: which devices to use. ``descriptors`` hold the devices; the executor gives them to what
    watches the job, never to the job.
    """

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    descriptors: tuple[int, ...] = ()

    def release(self) -> None:
        """Let others have the devices. Call it once, when the job has ended."""
        for descriptor in self.descriptors:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a forked child that has inherited the descriptor
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class Busy:
    """The devices are in use at the moment, by ``holder``."""

    device: str
    holder: str


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One command to run. ``name`` is what messages call it.

    - ``env``: the whole environment of the command; nothing is taken from that of the caller.
    - ``log_path``: its output and its errors are appended here. Folders that are missing are made.
    - ``log_bytes``: the most that its log takes of the disk. What is longer is told in ``log_path``.1, and its
      beginning in ``log_path``.0; what was between them is dropped.
    - ``lease_seconds``: how long it may live before the first ``renew``.
    - ``claim``: the devices that it uses. Its ``env`` is not added to that of the command.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log_path: str
    lease_seconds: float
    log_bytes: int = LOG_BYTES
    claim: Claim = field(default_factory=Claim)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Whether a job runs, and how it ended: with an ``exit_code``, or by a ``signal``.

    ``reason`` says why the executor ended it, and is None if it ended otherwise.
    """

    running: bool
    exit_code: int | None = None
    signal: int | None = None
    reason: EndReason | None = None


RUNNING = JobState(running=True)
"""The state of every job that has not ended."""


class Executor(Protocol):
    """Runs commands. All methods may be called from several threads.

    When a job has ended, so have all processes that it started. A job ends when its main process ends, when it is
    cancelled, when the process that submitted it dies, and when it is not renewed in time.
    """

    def preflight(self, resources: ResourceConfig) -> None:
        """Raise ``DeviceNotFoundError`` or ``NotEnoughResourcesError`` if such a job can never run here."""
        ...

    def capacity(self) -> Capacity:
        """What all jobs together may use."""
        ...

    def claim(self, resources: ResourceConfig, preferred: Iterable[int] = ()) -> Claim | Busy:
        """Take the devices for one job, ``preferred`` GPUs first; ``Busy`` if others have them. Never waits.

        Raises ``StepError`` if it can't be known who has them.
        """
        ...

    def submit(self, spec: JobSpec) -> str:
        """Start the command and return the job's id.

        Raises ``StoreError`` if its log can't be written, and ``StepError`` if no process can be started.
        A command that is not there is a job that ends with exit code 127; its log says so.
        """
        ...

    def poll(self, job: str) -> JobState:
        """How the job is now. May be asked again after its end. Raises ``LookupError`` for a job of somebody else."""
        ...

    def renew(self, job: str, seconds: float) -> None:
        """Let the job live for ``seconds`` from now without another renewal. Nothing happens if it has ended."""
        ...

    def cancel(self, job: str, grace_seconds: float) -> None:
        """Ask the job to stop (SIGTERM), and kill what is left of it after ``grace_seconds``. Returns at once.

        A second call may shorten the grace, never lengthen it. Nothing happens if the job has ended.
        """
        ...

    def wait(self, job: str, timeout: float) -> JobState:
        """``poll``, but not before the job has ended or ``timeout`` seconds have passed."""
        ...
