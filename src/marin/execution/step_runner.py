"""Makes one artifact: takes its lease or waits for whoever has it, runs the step, publishes what it made.

A little longer than other files: what happens under one lease, from the first try to the record, is read in one go.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from marin.errors import ArtifactTypeError, LeaseLostError, OutputError, StepStoppedError, StoreError
from marin.execution.acquire import take_or_wait
from marin.execution.adopt import adopted_build
from marin.execution.context import RunContext
from marin.execution.events import Outcome
from marin.execution.failure import Failure, shortened
from marin.execution.graph import Step
from marin.execution.held_record import HeldRecord, stopped, working_under
from marin.execution.logs import AttemptLog
from marin.execution.naming import class_name
from marin.execution.observe import recorded_fingerprint
from marin.execution.partial_work import leftover, prepare_folder
from marin.execution.progress import progress_sink
from marin.execution.recipe import check_pure
from marin.execution.record import (
    Build,
    FailedTry,
    build_folder,
    data_path,
    log_path,
    new_build_id,
    timestamp,
)
from marin.execution.remote_function import RemoteFunction
from marin.execution.results import recordable_result
from marin.execution.retrying import MAX_EARLIER, is_retried, pause_before_retry
from marin.execution.run_state import RunState, Stopped
from marin.execution.showing import plain
from marin.execution.step_body import Completed, execute
from marin.execution.step_function import load_function
from marin.execution.step_process import StepProcess
from marin.storage.store import BUILD_PREFIX

_PAUSE_SLICE_SECONDS = 0.2
_MAX_ERROR = 2000
"""Characters of the error of a try that was repeated: the record stays small, its log has the rest."""

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
            return _make_under_lease(run, step, taken)
        except LeaseLostError as lost:
            if (request := taken.attempt.stop) is not None:
                raise stopped(step.id, request) from lost
            if attempt == MAX_LOST_LEASES or taken.is_hopeless or run.stop.is_set():
                raise
            run.reporter.noted(step.id, f"{str(lost).removeprefix(f'{step.id}: ')}; trying again")
        finally:
            run.held.pop(step.id, None)
            taken.give_up()
    raise AssertionError("unreachable")


def _make_under_lease(run: RunState, step: Step, held: HeldRecord) -> Made:
    """Try until it is made, or has failed for good, which is recorded."""
    failed: FailedTry | None = None
    while True:
        attempt = _Attempt(run, step, held)
        try:
            if failed is not None:
                attempt.prepare_after(failed)
            return attempt.run_and_publish()
        except Stopped:
            attempt.record_stop()
            raise
        except BaseException as fault:
            if attempt.is_retried_after(fault):
                failed = attempt.begin_again(fault)
            elif attempt.record_failure(fault):
                raise
            else:
                failed = None
            if failed is None:
                # What it ran into is the doing of whoever took over, such as a folder that is gone.
                raise held.lost() from fault


class _Attempt:
    """One attempt at a step, under its lease."""

    def __init__(self, run: RunState, step: Step, held: HeldRecord) -> None:
        self.run, self.step, self.held = run, step, held
        self.build_id = held.attempt.build_id
        self.address = step.id.address
        self.folder = build_folder(self.address, self.build_id)
        self.started = time.monotonic()
        self.remote = step.run if isinstance(step.run, RemoteFunction) else None
        self.process = StepProcess(run, step, held) if self.remote is not None else None

    @functools.cached_property
    def log(self) -> AttemptLog:
        path = log_path(self.address, self.build_id)
        return AttemptLog(path, self.run.store.url(path))

    def run_and_publish(self) -> Made:
        if self.process is not None:
            kept = self.run.keeper.keep(self.held, renewed=self.process.extend)
        else:
            kept = self.run.keeper.keep(self.held, stopped=self._abandon)
        with kept:
            if self.step.source is not None:
                self.run.reporter.started(self.step.id, log=None)
                build = adopted_build(self.run, self.step, self.build_id)
                self.held.publish(build, None)
                with contextlib.suppress(StoreError, OSError):  # nothing is written there
                    self.run.store.remove_unheld(self.folder)
                return Made(build, Outcome.ADOPTED)
            if not (folders := self._mutable_inputs()):
                return Made(self._publish(self._run_step()), Outcome.BUILT)
            with contextlib.ExitStack() as stack:
                for folder in folders:
                    stack.enter_context(self.run.store.hold(folder))
                return Made(self._publish(self._run_step()), Outcome.BUILT)

    def record_stop(self) -> None:
        """The whole run was told to stop."""
        with contextlib.suppress(StoreError, OSError):
            self.held.fail("interrupted", None, self.log.recorded())

    def is_retried_after(self, fault: BaseException) -> bool:
        """Whether the run tries the step again."""
        if self.remote is None or self.held.is_lost or self.run.stop.is_set():
            return False
        return self.held.attempt.number <= self.remote.retries and is_retried(fault, self.remote.retry_on)

    def begin_again(self, fault: BaseException) -> FailedTry | None:
        """Put a new attempt into the record, under the same lease. None: the lease was lost."""
        failure = Failure.from_exception(fault).of(self.step.id)
        ours = self.held.attempt
        kept = FailedTry(
            build_id=self.build_id,
            started=ours.started,
            error=shortened(f"{failure.error}: {failure.message}", _MAX_ERROR),
            frame=failure.frame or None,
            log=self.log.recorded(),
        )
        now = datetime.datetime.now(datetime.UTC)
        following = msgspec.structs.replace(
            ours,
            build_id=new_build_id(now),
            started=timestamp(now),
            number=ours.number + 1,
            earlier=(*ours.earlier, kept)[-MAX_EARLIER:],
            takes_over=leftover(self.run, self.step, msgspec.structs.replace(ours, error=kept.error)),
        )
        try:
            if not self.held.begin_again(following):
                return None
        except (StoreError, OSError) as untold:
            fault.add_note(f"It was not tried again, as this could not be recorded: {untold}")
            raise fault from None
        return kept

    def prepare_after(self, failed: FailedTry) -> None:
        """Say that the step is tried again, wait a moment, and make the folder, with what the failed try has left."""
        assert self.remote is not None
        retry = self.held.attempt.number - 1
        seconds = pause_before_retry(retry, self.run.options.retry_seconds)
        self.run.reporter.retrying(self.step.id, failed, retry=retry, of=self.remote.retries, seconds=seconds)
        with self.run.keeper.keep(self.held):
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if self.run.stop.wait(min(left, _PAUSE_SLICE_SECONDS)):
                    raise Stopped
                if (request := self.held.attempt.stop) is not None:
                    raise stopped(self.step.id, request)
            prepare_folder(self.run, self.step, self.held, is_first=False)

    def _abandon(self) -> None:
        """Somebody wants a step in a thread to end, which can't be done: nobody waits for it, and it can't publish."""
        request = self.held.attempt.stop
        assert request is not None
        # A store that can't be written now is asked again a moment later.
        with contextlib.suppress(StoreError, OSError):
            if self.held.fail(f"stopped by {request.by}", None, None):
                self.run.abandon(self.step.id, stopped(self.step.id, request))

    def _run_step(self) -> Completed:
        config = step_config(self.run, self.step, self.build_id)
        self.run.reporter.started(self.step.id, log=self.log.place if self.remote is not None else None)
        if self.remote is not None and self.process is not None:
            self._prepare_log()
            return self.process.execute(self.remote, config)
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
        if not self.step.id.is_mutable:
            return []  # a fixed version depends on fixed ones only
        ids = {dep.id for dep in self.step.deps if dep.id.is_mutable}
        builds = {id_: self.run.builds[id_] for id_ in ids}
        return [data_path(id_.address, build) for id_, build in builds.items() if build.source is None]

    def _publish(self, completed: Completed) -> Build:
        result = self._checked_result(completed.result)
        moves = self.run.store.publishes_by_moving and not self.step.id.is_mutable
        fingerprint = recorded_fingerprint(self.step, self.run.secrets)
        build = Build(
            build_id=self.build_id,
            data="." if moves else f"{BUILD_PREFIX}{self.build_id}",
            fingerprint=fingerprint,
            artifact_type=class_name(self.step.artifact_type),
            result=result,
            config=plain(fingerprint.payload.get("config")),
            runtime_args=_readable(self.step.runtime_args),
            deps=self.held.attempt.inputs,
            manifest=completed.manifest,
            log=self.log.path if self.remote is not None else None,
            started=self.held.attempt.started,
            finished=timestamp(datetime.datetime.now(datetime.UTC)),
            seconds=round(time.monotonic() - self.started, 3),
            provenance=self.run.provenance(),
            code=self.run.code.get(self.step.id),
            earlier=self.held.attempt.earlier,
        )
        if self.run.durable:
            self.run.store.sync(self.folder)
        self.held.publish(build, self.folder if moves else None)
        return build

    def _checked_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """What is recorded. Refuses what no reader of the record could load."""
        try:
            return recordable_result(self.step.artifact_type, result)
        except ArtifactTypeError as fault:
            raise OutputError(f"{fault}. Let the step return values of the types that its class declares") from fault

    def record_failure(self, fault: BaseException) -> bool:
        """Record why the attempt failed. False: the lease was lost before."""
        failure = Failure.from_exception(fault).of(self.step.id)
        error = f"{failure.error}: {failure.message}"
        retried = self.remote is not None and self.remote.retries > 0 and self.remote.retry_on == "crash"
        if retried and is_retried(fault, "error") and not is_retried(fault, "crash"):
            note = "is not tried again: retries are for crashes, and it raised an error; retry_on='error' is for both"
            self.run.reporter.noted(self.step.id, note)
        if isinstance(fault, StepStoppedError) and (request := self.held.attempt.stop) is not None:
            error = f"stopped by {request.by}"
        if self.remote is None:
            self._prepare_log()
            self.log.write(failure.traceback)
        try:
            return self.held.fail(error, failure.frame or None, self.log.recorded())
        except (StoreError, OSError) as untold:
            # What the step ran into matters more; it may well be the same full disk.
            fault.add_note(f"This could not be recorded: {untold}")
            return True

    def _prepare_log(self) -> None:
        served = self.held.kept
        self.log.prepare(keep=[os.path.basename(served.log)] if served is not None and served.log else [])


def step_config(run: RunState, step: Step, build_id: str) -> Any:
    """The config of an attempt at ``step``, with the inputs of this run."""
    check_pure(step)
    if step.build_config is None:
        return {}
    context = RunContext(
        step,
        output_path=run.store.url(build_folder(step.id.address, build_id)),
        prefix=run.prefix,
        region=run.options.region,
        inputs={str(dep.id): run.artifact(dep.id) for dep in step.deps},
    )
    config = step.build_config(context)
    return {} if config is None else config


def _readable(runtime_args: Mapping[str, Any]) -> dict[str, Any]:
    if not runtime_args:
        return {}
    # What only people read costs other steps no import.
    from marin.execution.abbreviation import readable  # noqa: PLC0415

    return {key: readable(value, key) for key, value in runtime_args.items()}
