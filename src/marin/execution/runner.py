"""``run``, ``resolve``, ``load`` and ``plan``: from handles to artifacts.

``run`` plans (pure), schedules (pure) and makes what is missing in threads of this process, each of which looks after
one step. Steps that were given to ``remote`` run in processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

from marin.errors import ConfigurationError, MarinError, NotBuiltError, RunError, RunInterrupted
from marin.execution import provenance
from marin.execution.artifact import Artifact, at_path, decode_result
from marin.execution.console import default_reporter
from marin.execution.events import FailedStep, Reporter
from marin.execution.failure import Failure
from marin.execution.graph import Step, StepGraph, lower
from marin.execution.held_record import LeaseKeeper
from marin.execution.identity import ArtifactId
from marin.execution.lazy import ArtifactStep
from marin.execution.observe import build_url, observe, observe_step
from marin.execution.options import RunOptions, ambient_options, is_durable, usable_cores
from marin.execution.planning import Decision, Plan, make_plan
from marin.execution.remote import RemoteFunction
from marin.execution.remote_call import check_sendable
from marin.execution.schedule import Schedule
from marin.execution.step_runner import Made, RunState, Stopped, make
from marin.executors.executor import Executor
from marin.executors.local import LocalExecutor
from marin.storage.format import ensure_format
from marin.storage.local import LocalStore
from marin.storage.prefix import Prefix, open_store, resolve_prefix

T = TypeVar("T", bound=Artifact)


class TargetsCaptured(BaseException):
    """Ends a script whose call of ``run`` was only looked at, not carried out."""


@dataclass
class CapturedTargets:
    """The handles that a script asked to run."""

    handles: list[Step] = field(default_factory=list[Step])


_CAPTURE: ContextVar[CapturedTargets | None] = ContextVar("marin_capture", default=None)


@contextlib.contextmanager
def capture_targets() -> Generator[CapturedTargets]:
    """Inside, ``run`` and ``resolve`` do nothing: they note their handles and raise ``TargetsCaptured``."""
    caught = CapturedTargets()
    token = _CAPTURE.set(caught)
    try:
        yield caught
    finally:
        _CAPTURE.reset(token)


def resolve(handle: ArtifactStep[T], *, options: RunOptions | None = None, reporter: Reporter | None = None) -> T:
    """The artifact of ``handle``; built first where it, or something it needs, is missing. Errors as in ``run``."""
    return run(handle, options=options, reporter=reporter)[0]


def load(handle: ArtifactStep[T], *, options: RunOptions | None = None) -> T:
    """The artifact of ``handle`` as it lies in the store. Never builds.

    Raises ``NotBuiltError`` if there is no complete build, and ``ArtifactTypeError`` if it is of another type.
    """
    prefix, store = _open(options or ambient_options())
    seen = observe_step(store, handle)
    if seen.fault is not None:
        raise seen.fault
    if seen.pinned is not None:
        build, path = seen.pinned, seen.pinned.source or ""
    elif seen.record is None or seen.record.build is None:
        state = (
            "has not been built" if seen.record is None else f"has no complete build: it is {seen.record.state.value}"
        )
        raise NotBuiltError(f"{handle.id} {state} in {prefix.location}. Build it with resolve(...) or 'marin run'")
    else:
        build, path = seen.record.build, build_url(store, seen.record, seen.record.build)
    artifact = decode_result(
        handle.artifact_type, build.result, what=f"record of {handle.id} (a {build.artifact_type})"
    )
    return at_path(artifact, path)


def plan(*handles: Step, options: RunOptions | None = None) -> Plan:
    """What ``run`` would do, and why. Writes nothing."""
    options = options or ambient_options()
    _, store = _open(options)
    return _plan(store, lower(*handles), options)


def run(*handles: Step, options: RunOptions | None = None, reporter: Reporter | None = None) -> tuple[Any, ...]:
    """The artifacts of ``handles``, in order; what is missing is built first, dependencies before dependents.

    Raises a ``MarinError`` before anything runs if the pipeline can't be run as it is; ``RunError`` at the end if
    steps failed, after everything that does not depend on them was made; ``RunInterrupted`` on SIGINT and SIGTERM.
    """
    if (capture := _CAPTURE.get()) is not None:
        capture.handles.extend(handles)
        raise TargetsCaptured
    options = options or ambient_options()
    prefix, store = _open(options)
    planned = _plan(store, lower(*handles), options)
    shown = cast("Reporter", _OneAtATime(reporter or default_reporter()))
    shown.planned(planned, prefix=prefix.location, origin=prefix.origin, hint=prefix.hint)
    executor = LocalExecutor()
    try:
        _refuse(planned, executor)
    except BaseException:
        shown.ended(interrupted=False)
        raise
    state = RunState(
        store=store,
        options=options,
        prefix=prefix.location,
        durable=is_durable(options, os.environ),
        reporter=shown,
        executor=executor,
        keeper=LeaseKeeper(options.lease_seconds),
        provenance=_once(lambda: provenance.capture(os.environ, sys.orig_argv, Path.cwd())),
        steps=planned.graph.steps,
    )
    for step in planned.of(Decision.SERVE):
        assert step.build is not None  # what is served has a build
        state.builds[step.id] = step.build
    if planned.to_make:
        ensure_format(store)
        _Run(state, planned).carry_out()
    else:
        shown.ended(interrupted=False)
    return tuple(state.artifact(handle.id) for handle in handles)


def _open(options: RunOptions) -> tuple[Prefix, LocalStore]:
    prefix = resolve_prefix(options.prefix, environ=os.environ, cwd=Path.cwd())
    return prefix, open_store(prefix.location, durable=is_durable(options, os.environ))


def _plan(store: LocalStore, graph: StepGraph, options: RunOptions) -> Plan:
    only = _only(graph, options.only)
    return make_plan(graph, observe(store, graph), only=only)


def _only(graph: StepGraph, names: Sequence[str]) -> frozenset[ArtifactId] | None:
    if not names:
        return None
    chosen = set[ArtifactId]()
    for name in names:
        found = [id_ for id_ in graph.steps if name in (id_.name, str(id_))]
        if not found:
            known = ", ".join(sorted(id_.name for id_ in graph.steps))
            raise ConfigurationError(f"--only {name}: no step of that name. The steps are: {known}")
        chosen.update(found)
    return frozenset(chosen)


def _refuse(planned: Plan, executor: Executor) -> None:
    """Raise before anything runs if a step can't be served or built, can't be sent, or has no device to run on."""
    errors = planned.errors
    for step in planned.to_make:
        if isinstance(step.step.run, RemoteFunction):
            try:
                executor.preflight(step.step.run.resources)
                check_sendable(str(step.id), step.step.run.function)
            except MarinError as fault:
                errors.append(fault)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} steps can't be run as they are", errors)


def _once(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """``function``, called at most once, at the first need."""
    lock = threading.Lock()
    kept: list[dict[str, Any]] = []

    def get() -> dict[str, Any]:
        with lock:
            if not kept:
                kept.append(function())
            return kept[0]

    return get


class _OneAtATime:
    """Passes events on under a lock, so that a reporter need not think of threads."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., None]:
        method = getattr(self._reporter, name)

        def call(*args: Any, **kwargs: Any) -> None:
            with self._lock:
                method(*args, **kwargs)

        setattr(self, name, call)
        return call


@dataclass(frozen=True)
class _Ended:
    """What a thread says at the end of a step: what was made, or why not."""

    id: ArtifactId
    made: Made | None
    fault: BaseException | None
    seconds: float = 0.0


class _Run:
    """Carries out a plan: starts what is ready, looks at what ended."""

    def __init__(self, state: RunState, planned: Plan) -> None:
        self.state = state
        self.planned = planned
        making = {step.id for step in planned.to_make}
        self.schedule = Schedule({id_: planned.graph.deps[id_] for id_ in planned.graph.steps if id_ in making})
        self.jobs: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[_Ended | None] = queue.SimpleQueue()  # None: wake up, a signal came
        self.threads = 0
        self.idle = 0
        self.failures: list[FailedStep] = []
        self.blocked: dict[ArtifactId, ArtifactId] = {}
        self.signal: int | None = None

    def carry_out(self) -> None:
        limit = self.state.options.max_concurrent or usable_cores()
        try:
            with self._signals():
                while not self.schedule.done and self.signal is None:
                    self._start_ready(limit)
                    self._take_in(self.ended.get())
                if self.signal is not None:
                    self._wind_up()
        finally:
            for _ in range(self.threads):
                self.jobs.put(None)
            self.state.keeper.stop()
            self.state.reporter.ended(interrupted=self.signal is not None)
        if self.signal is not None:
            name = signal.Signals(self.signal).name
            raise RunInterrupted(f"the run was stopped by {name}; what was finished is kept", 128 + self.signal)
        if self.failures:
            raise self._error()

    def _start_ready(self, limit: int) -> None:
        while len(self.schedule.running) < limit and (id_ := self.schedule.pop_ready()) is not None:
            if len(self.schedule.running) > self.threads:
                self.threads += 1
                threading.Thread(target=self._work, name=f"marin-step-{self.threads}", daemon=True).start()
            self.jobs.put(self.planned.graph.steps[id_])

    def _work(self) -> None:
        while (step := self.jobs.get()) is not None:
            try:
                made = make(self.state, step)
            except BaseException as fault:  # noqa: BLE001  # whatever ends a step is told, never lost in its thread
                self.ended.put(_Ended(step.id, None, fault))
            else:
                self.ended.put(_Ended(step.id, made, None))

    def _take_in(self, ended: _Ended | None) -> None:
        if ended is None:
            return
        if ended.made is not None:
            self.state.builds[ended.id] = ended.made.build
            self.schedule.finish(ended.id)
            self.state.reporter.finished(
                ended.id, ended.made.outcome, seconds=ended.made.build.seconds, path=self.state.path(ended.id)
            )
            return
        blocked = self.schedule.fail(ended.id)
        if isinstance(ended.fault, Stopped):
            return
        assert ended.fault is not None
        self._note_failure(ended.id, ended.fault)
        for id_ in blocked:
            self.blocked[id_] = ended.id
            self.state.reporter.blocked(id_, by=ended.id)
        if self.state.options.fail_fast:
            for id_ in self.schedule.abandon_waiting():
                self.blocked[id_] = ended.id
                self.state.reporter.blocked(id_, by=ended.id)

    def _note_failure(self, id_: ArtifactId, fault: BaseException) -> None:
        failure = Failure.from_exception(fault)
        seen = observe_step(self.state.store, self.planned.graph.steps[id_])
        log = seen.record.attempt.log if seen.record is not None and seen.record.attempt is not None else None
        failed = FailedStep(
            id=id_, failure=failure, log=self.state.store.url(log) if log is not None else None, cause=fault
        )
        self.failures.append(failed)
        self.state.reporter.failed(failed)

    def _wind_up(self) -> None:
        """Stopped by a signal: processes are ended and waited for; a thread can't be ended, its step is given up."""
        self.state.stop.set()
        steps = self.planned.graph.steps
        in_process = {id_ for id_ in self.schedule.running if isinstance(steps[id_].run, RemoteFunction)}
        while in_process & self.schedule.running:
            self._take_in(self.ended.get())
        self.state.wait_for_takers()
        for id_, held in list(self.state.held.items()):
            if id_ in self.schedule.running:
                held.fail("interrupted", None, None)

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        """SIGINT and SIGTERM stop the run; a second one ends the steps at once. Only on the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            del frame
            if self.signal is not None:
                self.state.kill.set()
            self.signal = self.signal or number
            self.state.stop.set()
            self.ended.put(None)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _error(self) -> RunError:
        lines = [f"{len(self.failures)} of {len(self.planned.to_make)} steps failed:"]
        for failed in self.failures:
            lines.append(f"  {failed.id}: {failed.failure.error}: {failed.failure.message}")
            lines.append(f"    at {failed.failure.frame}" + (f", log: {failed.log}" if failed.log else ""))
        if self.blocked:
            lines.append(f"{len(self.blocked)} not made because of them:")
            lines += [f"  {id_} (needs {by})" for id_, by in self.blocked.items()]
        error = RunError("\n".join(lines))
        error.__cause__ = self.failures[0].cause
        return error
