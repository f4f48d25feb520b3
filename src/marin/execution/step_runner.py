"""Makes one artifact: takes its lease or waits for whoever has it, runs the step, publishes what it made."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.errors import (
    ArtifactTypeError,
    LeaseLostError,
    NotEnoughResourcesError,
    OutputError,
    StepError,
    StoreError,
)
from marin.execution.acquire import take_or_wait
from marin.execution.adopt import adopted_build
from marin.execution.artifact import decode_result, to_json
from marin.execution.context import RunContext
from marin.execution.events import Outcome
from marin.execution.failure import Failure
from marin.execution.graph import Step
from marin.execution.held_record import WORKING_UNDER_VARIABLE, HeldRecord, nonces_around_us, working_under
from marin.execution.naming import class_name
from marin.execution.observe import recorded_fingerprint
from marin.execution.progress import Progress, progress_sink
from marin.execution.recipe import check_pure
from marin.execution.record import (
    BUILDS_FOLDER,
    LOGS_FOLDER,
    Build,
    ManifestSummary,
    build_folder,
    data_path,
    log_path,
    timestamp,
)
from marin.execution.redaction import redact_values
from marin.execution.remote import RemoteFunction
from marin.execution.remote_call import RemoteCall
from marin.execution.run_state import RunState, Stopped
from marin.execution.showing import plain
from marin.execution.step_body import Completed, execute
from marin.execution.step_function import load_function
from marin.executors.executor import Busy, Claim
from marin.executors.quantities import show_size
from marin.storage.prefix import PREFIX_VARIABLE

POLL_SECONDS = 0.1
"""How often the supervisor of a step's process looks for progress, and whether it should stop."""

GRACE_SECONDS = 10.0
"""How long a step may take to save its work when the run is stopped, before it is killed."""

DEVICE_SECONDS = 0.5
"""How often it is looked whether a device is free that another run uses."""

MAX_LOST_LEASES = 3
"""How often a step whose builder was silent for too long is tried again within one run."""


@dataclass(frozen=True)
class Made:
    """How a step was made, and the build that the run uses from now on."""

    build: Build
    outcome: Outcome


def make(run: RunState, step: Step) -> Made:
    """Make the artifact of ``step``, or get it from whoever makes it at the moment.

    Raises what the step raised, ``Stopped``, or a ``StepError`` or ``StoreError``.
    """
    for attempt in range(1, MAX_LOST_LEASES + 1):
        taken = take_or_wait(run, step)
        if isinstance(taken, Build):
            return Made(taken, Outcome.REUSED)
        try:
            return _Attempt(run, step, taken).run_and_publish()
        except LeaseLostError as lost:
            if attempt == MAX_LOST_LEASES or run.stop.is_set():
                raise
            run.reporter.noted(step.id, f"{lost}; trying again")
        finally:
            run.held.pop(step.id, None)
            taken.give_up()
    raise AssertionError("unreachable")


class _Attempt:
    """One attempt at a step, under its lease."""

    def __init__(self, run: RunState, step: Step, held: HeldRecord) -> None:
        self.run, self.step, self.held = run, step, held
        self.build_id = held.attempt.build_id
        self.address = step.id.address
        self.folder = build_folder(self.address, self.build_id)
        self.log = log_path(self.address, self.build_id)
        self.started = time.monotonic()
        self._call: RemoteCall | None = None

    def run_and_publish(self) -> Made:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.run.keeper.keep(self.held, self._extend_worker))
            try:
                if self.step.source is not None:
                    self.run.reporter.started(self.step.id, log=None)
                    build = adopted_build(self.run, self.step, self.build_id)
                    self.held.publish(build, None)
                    return Made(build, Outcome.ADOPTED)
                for folder in self._mutable_inputs():
                    stack.enter_context(self.run.store.hold(folder))
                return Made(self._publish(self._run_step()), Outcome.BUILT)
            except Stopped:
                with contextlib.suppress(StoreError, OSError):
                    self.held.fail("interrupted", None, self._existing_log())
                raise
            except BaseException as fault:
                if not self._record_failure(fault):
                    # What it ran into is the doing of whoever took over, such as a folder that is gone.
                    raise self.held.lost() from fault
                raise

    def _run_step(self) -> Completed:
        config = self._config()
        remote = self.step.run if isinstance(self.step.run, RemoteFunction) else None
        self.run.reporter.started(self.step.id, log=self.run.store.url(self.log) if remote is not None else None)
        if remote is not None:
            return self._run_in_process(remote, config)
        assert self.step.run is not None  # checked at construction
        assert not isinstance(self.step.run, RemoteFunction)
        told = progress_sink(lambda progress: self.run.reporter.progressed(self.step.id, progress))
        with told, working_under(self.held.attempt.lease):
            return execute(
                load_function(self.step.run),
                config,
                artifact_type=self.step.artifact_type,
                output_path=self.run.store.url(self.folder),
            )

    def _mutable_inputs(self) -> list[str]:
        """Folders that a later build of the same ``dev`` version would remove, were they not held."""
        ids = {dep.id for dep in self.step.deps if dep.id.is_mutable}
        builds = {id_: self.run.builds[id_] for id_ in ids}
        return [data_path(id_.address, build) for id_, build in builds.items() if build.source is None]

    def _config(self) -> Any:
        check_pure(self.step)
        if self.step.build_config is None:
            return {}
        context = RunContext(
            self.step,
            output_path=self.run.store.url(self.folder),
            prefix=self.run.prefix,
            region=self.run.options.region,
            inputs={str(dep.id): self.run.artifact(dep.id) for dep in self.step.deps},
        )
        config = self.step.build_config(context)
        return {} if config is None else config

    def _run_in_process(self, remote: RemoteFunction, config: Any) -> Completed:
        self._make_logs_folder()
        check_disk(self.step, self.run.store.url(self.address))
        claim = self._claim(remote)
        try:
            return self._run_with(claim, remote, config)
        finally:
            claim.release()

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
            if self.held.is_lost:
                raise LeaseLostError(f"{self.step.id}: the lease was lost while the step waited for {claim.device}")

    def _run_with(self, claim: Claim, remote: RemoteFunction, config: Any) -> Completed:
        call = RemoteCall.start(
            self.run.executor,
            name=str(self.step.id),
            function=remote.function,
            config=config,
            artifact_type=self.step.artifact_type,
            output_path=self.run.store.url(self.folder),
            job_folder=self.run.store.url(f"{self.address}/{BUILDS_FOLDER}/job-{self.build_id}"),
            log_path=self.run.store.url(self.log),
            env={**self._environment(), **claim.env},
            lease_seconds=self.held.ttl_seconds,
            claim=claim,
        )
        self._call = call
        try:
            return self._watch(call)
        finally:
            self._call = None
            call.close()

    def _environment(self) -> dict[str, str]:
        """What a run that the step itself starts must know."""
        around = nonces_around_us() | {self.held.attempt.lease.nonce}
        return {PREFIX_VARIABLE: self.run.prefix, WORKING_UNDER_VARIABLE: ",".join(sorted(around))}

    def _watch(self, call: RemoteCall) -> Completed:
        shown: Progress | None = None
        while True:
            if self.run.stop.is_set():
                self._stop(call)
            if (completed := call.wait(POLL_SECONDS)) is not None:  # the end of the process wakes it
                return completed
            if self.held.is_lost:
                raise LeaseLostError(f"{self.step.id}: the lease was lost while the step ran")
            progress = call.progress()
            if progress is not None and progress != shown:
                self.run.reporter.progressed(self.step.id, progress)
                shown = progress

    def _stop(self, call: RemoteCall) -> None:
        """End the step's process: SIGTERM, time to save its work, SIGKILL; at once on a second signal."""
        call.cancel(GRACE_SECONDS)
        with contextlib.suppress(StepError):  # however it ends now, it was stopped
            while call.wait(0.05) is None:
                if self.run.kill.is_set():
                    call.cancel(0.0)
        raise Stopped

    def _extend_worker(self) -> None:
        call = self._call
        if call is not None:
            call.renew(self.held.ttl_seconds)

    def _publish(self, completed: Completed) -> Build:
        self._check_result(completed.result)
        moves = self.run.store.publishes_by_moving and not self.step.id.is_mutable
        has_log = isinstance(self.step.run, RemoteFunction)
        fingerprint = recorded_fingerprint(self.step, self.run.secrets)
        build = Build(
            build_id=self.build_id,
            data="." if moves else f"{BUILDS_FOLDER}/{self.build_id}",
            fingerprint=fingerprint,
            artifact_type=class_name(self.step.artifact_type),
            result=completed.result,
            config=plain(fingerprint.payload.get("config")),
            runtime_args=redact_values({key: _readable(value) for key, value in self.step.runtime_args.items()}),
            deps=self.held.attempt.inputs,
            manifest=ManifestSummary(
                files=completed.manifest.files, bytes=completed.manifest.bytes, digest=completed.manifest.digest
            ),
            log=self.log if has_log else None,
            started=self.held.attempt.started,
            finished=timestamp(datetime.datetime.now(datetime.UTC)),
            seconds=round(time.monotonic() - self.started, 3),
            provenance=self.run.provenance(),
            code=self.run.code.get(self.step.id),
        )
        if self.run.durable:
            self.run.store.sync(self.folder)
        self.held.publish(build, self.folder if moves else None)
        return build

    def _check_result(self, result: dict[str, Any]) -> None:
        """Refuse what no reader of the record could load."""
        try:
            decode_result(self.step.artifact_type, result, what="step's result")
        except ArtifactTypeError as fault:
            raise OutputError(f"{fault}. Let the step return values of the types that its class declares") from fault

    def _record_failure(self, fault: BaseException) -> bool:
        """Record why the attempt failed. False: the lease was lost before."""
        failure = Failure.from_exception(fault)
        if not isinstance(self.step.run, RemoteFunction):
            self._write_log(failure.traceback)
        try:
            return self.held.fail(f"{failure.error}: {failure.message}", failure.frame or None, self._existing_log())
        except (StoreError, OSError) as untold:
            # What the step ran into matters more; it may well be the same full disk.
            fault.add_note(f"This could not be recorded: {untold}")
            return True

    def _existing_log(self) -> str | None:
        return self.log if os.path.exists(self.run.store.url(self.log)) else None

    def _write_log(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the failure itself matters more than its log
            self._make_logs_folder()
            Path(self.run.store.url(self.log)).write_text(text, encoding="utf-8", errors="backslashreplace")

    def _make_logs_folder(self) -> None:
        os.makedirs(self.run.store.url(f"{self.address}/{LOGS_FOLDER}"), exist_ok=True)


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


def _readable(value: Any) -> Any:
    """A runtime argument as it is shown in the record: JSON, or its text."""
    try:
        return to_json(value)
    except (TypeError, ValueError):
        return repr(value)
