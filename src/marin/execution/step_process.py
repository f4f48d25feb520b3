"""One try at a step in a process of its own, seen to its end: its devices, its time, its heartbeat, its stop."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from typing import Any

from marin.errors import LeaseLostError, NotEnoughResourcesError, StepError, StepTimeoutError
from marin.execution.graph import Step
from marin.execution.held_record import WORKING_UNDER_VARIABLE, HeldRecord, nonces_around_us, stopped
from marin.execution.manifest import renewed_manifest
from marin.execution.progress import Progress
from marin.execution.record import build_folder, log_path
from marin.execution.remote_call import RemoteCall
from marin.execution.remote_function import RemoteFunction
from marin.execution.run_state import RunState, Stopped
from marin.execution.step_body import Completed
from marin.executors.executor import Busy, Claim
from marin.executors.quantities import show_duration, show_size
from marin.storage.prefix import PREFIX_VARIABLE
from marin.storage.store import JOB_PREFIX, is_ours

POLL_SECONDS = 0.1
"""How often the supervisor of a step's process looks for progress, and whether it should stop."""

DEVICE_SECONDS = 0.5
"""How often it is looked whether a device is free that another run uses."""


class StepProcess:
    """The process of one try at a step, under its lease."""

    def __init__(self, run: RunState, step: Step, held: HeldRecord) -> None:
        self.run, self.step, self.held = run, step, held
        build_id = held.attempt.build_id
        self.folder = build_folder(step.id.address, build_id)
        self.log = log_path(step.id.address, build_id)
        self.job_folder = f"{step.id.address}/{JOB_PREFIX}{build_id}"
        self._call: RemoteCall | None = None

    def execute(self, remote: RemoteFunction, config: Any) -> Completed:
        """Run the step, and return what it made. Raises what it raised, or why it was ended."""
        check_disk(self.step, self.run.store.url(self.step.id.address))
        claim = self._claim(remote)
        try:
            self._call = self._start(claim, remote, config)
            try:
                return self._finished(self._watch(self._call, remote))
            except LeaseLostError as lost:
                if self.held.fault is not None:
                    raise self.held.lost() from lost
                raise
            finally:
                call, self._call = self._call, None
                call.close()
        finally:
            claim.release()

    def extend(self) -> None:
        """The lease was renewed: the process may live on as well."""
        call = self._call
        if call is not None:
            call.renew(self.held.ttl_seconds)

    def _claim(self, remote: RemoteFunction) -> Claim:
        """The devices of the step. Waits, and says so, while another run uses them."""
        told: Busy | None = None
        while True:
            claim = self.run.executor.claim(remote.resources, self.run.gpus.get(self.step.id, ()))
            if isinstance(claim, Claim):
                return claim
            if claim != told:
                self.run.reporter.noted(self.step.id, f"waits for {claim.device}, which {claim.holder} uses")
                told = claim
            if self.run.stop.wait(DEVICE_SECONDS):
                raise Stopped
            self._check_lease()

    def _start(self, claim: Claim, remote: RemoteFunction, config: Any) -> RemoteCall:
        url = self.run.store.url
        return RemoteCall.start(
            self.run.executor,
            name=str(self.step.id),
            function=remote.function,
            config=config,
            artifact_type=self.step.artifact_type,
            output_path=url(self.folder),
            job_folder=url(self.job_folder),
            log_path=url(self.log),
            env={**self._environment(remote), **claim.env},
            lease_seconds=self.held.ttl_seconds,
            log_bytes=self.run.options.log_bytes,
            claim=claim,
        )

    def _environment(self, remote: RemoteFunction) -> dict[str, str]:
        """What the step's author wants to be set, and what a run that the step itself starts must know."""
        around = nonces_around_us() | {self.held.attempt.lease.nonce}
        return {
            **remote.unset_env(),
            PREFIX_VARIABLE: self.run.prefix,
            WORKING_UNDER_VARIABLE: ",".join(sorted(around)),
            **self.run.crew.environment(self.step.id, self.held.attempt, all_hosts=remote.all_hosts),
        }

    def _watch(self, call: RemoteCall, remote: RemoteFunction) -> Completed:
        shown: Progress | None = None
        began, limit = time.monotonic(), remote.limit_seconds
        while True:
            if self.run.stop.is_set():
                self._end(call, remote.grace)
                raise Stopped
            if (completed := call.wait(POLL_SECONDS)) is not None:  # the end of the process wakes it
                return completed
            if self.held.attempt.stop is not None:
                self._end(call, remote.grace)
            self._check_lease()
            self._check_crew(call, remote)
            if limit is not None and time.monotonic() - began > limit:
                self._end(call, remote.grace)
                raise self._timed_out(limit)
            progress = call.progress()
            if progress is not None and progress != shown:
                self.run.reporter.progressed(self.step.id, progress)
                shown = progress

    def _finished(self, completed: Completed) -> Completed:
        """With what its process has written after it had answered and before it ended."""
        folder = self.run.store.url(self.folder)
        manifest = renewed_manifest(folder, completed.manifest, completed.listed_at, refuse=is_ours)
        return completed if manifest is completed.manifest else dataclasses.replace(completed, manifest=manifest)

    def _end(self, call: RemoteCall, grace: float) -> None:
        """End the step's process: SIGTERM, time to save its work, SIGKILL; at once when the run is to be killed."""
        call.cancel(grace)
        with contextlib.suppress(Exception):  # however it ends now, it was stopped
            while call.wait(0.05) is None:
                if self.run.kill.is_set():
                    call.cancel(0.0)

    def _check_lease(self) -> None:
        if self.held.is_lost:
            raise self.held.lost()
        if (stop := self.held.attempt.stop) is not None:
            raise stopped(self.step.id, stop)

    def _check_crew(self, call: RemoteCall, remote: RemoteFunction) -> None:
        try:
            self.run.crew.check(self.held.attempt)
        except StepError:
            self._end(call, remote.grace)
            raise

    def _timed_out(self, limit: float) -> StepTimeoutError:
        return StepTimeoutError(
            f"{self.step.id} ran for longer than its limit of {show_duration(limit)} and was stopped: give it more "
            "time (timeout= of remote, or time= of its resources), or look in its log for what it waited for"
        )


def check_disk(step: Step, place: str) -> None:
    """Raise ``NotEnoughResourcesError`` unless the disk of ``place``, which need not exist, has room for the step."""
    wanted = step.run.resources.disk if isinstance(step.run, RemoteFunction) else None
    if wanted is None:
        return
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free
    if free < wanted:
        raise NotEnoughResourcesError(
            f"{step.id} asks for disk={show_size(wanted)}, and {place} has {show_size(free)} free: "
            f"{show_size(wanted - free)} are missing. Free them there, or choose another store with --prefix"
        )
