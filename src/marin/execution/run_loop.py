"""Carries out a plan: starts what is ready in threads, each of which looks after one step, and takes in what ended."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import queue
import signal
import threading
from collections.abc import Generator
from dataclasses import dataclass
from types import FrameType

from marin.errors import RunError, RunInterrupted, StoreError
from marin.execution.events import FailedStep
from marin.execution.failure import Failure, is_user_code
from marin.execution.graph import Step
from marin.execution.identity import ArtifactId
from marin.execution.observe import observe_step
from marin.execution.options import RunOptions, run_options
from marin.execution.planning import Plan
from marin.execution.remote import RemoteFunction
from marin.execution.run_state import RunState, Stopped
from marin.execution.schedule import Schedule
from marin.execution.signals import in_this_process
from marin.execution.step_runner import Made, make
from marin.executors.capacity import ONE_CPU, UNLIMITED, Admission, Capacity, Demand

SIGNAL_SECONDS = 0.2
"""How late a signal may be noticed that another thread has got."""


@dataclass(frozen=True)
class Ended:
    """What a thread says at the end of a step: what was made, or why not."""

    id: ArtifactId
    made: Made | None
    fault: BaseException | None


class RunLoop:
    """Carries out a plan: starts what is ready, looks at what ended."""

    def __init__(self, state: RunState, planned: Plan) -> None:
        self.state = state
        self.planned = planned
        making = {step.id for step in planned.to_make}
        self.schedule = Schedule({id_: planned.graph.deps[id_] for id_ in planned.graph.steps if id_ in making})
        self.jobs: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()  # None: wake up, a signal came
        self.admission = Admission[ArtifactId](_usable(state), state.options.max_concurrent or UNLIMITED)
        self.threads = 0
        self.busy = 0
        self.failures: list[FailedStep] = []
        self.blocked: dict[ArtifactId, ArtifactId] = {}
        self.signals: list[int] = []

    def carry_out(self) -> None:
        try:
            with self._signals():
                while not self.schedule.done and not self.signals:
                    self._start_ready()
                    self._take_in(self._wait())
                if self.signals:
                    self._wind_up()
        finally:
            for _ in range(self.threads):
                self.jobs.put(None)
            self.state.keeper.stop()
            self.state.reporter.ended(interrupted=bool(self.signals))
        if self.signals:
            name = signal.Signals(self.signals[0]).name
            raise RunInterrupted(f"the run was stopped by {name}; what was finished is kept", 128 + self.signals[0])
        if self.failures:
            raise self._error()

    def _start_ready(self) -> None:
        """Start what is ready and fits beside what runs. What does not fit stays the next, with what it needs kept."""
        round_ = self.admission.begin_round()
        passed_over: list[ArtifactId] = []
        while round_.is_open and (id_ := self.schedule.pop_ready()) is not None:
            step = self.planned.graph.steps[id_]
            if round_.admit(id_, _demand(step)):
                self._start(step)
            else:
                passed_over.append(id_)
        if passed_over:
            self.schedule.put_back(passed_over)

    def _start(self, step: Step) -> None:
        self.busy += 1
        if self.busy > self.threads:
            self.threads += 1
            here = contextvars.copy_context()  # what surrounds the run surrounds its steps
            name = f"marin-step-{self.threads}"
            threading.Thread(target=here.run, args=(self._work,), name=name, daemon=True).start()
        if gpus := self.admission.gpus_of(step.id):
            self.state.gpus[step.id] = gpus
        self.jobs.put(step)

    def _work(self) -> None:
        ours = self.state.options
        inner = RunOptions(
            prefix=self.state.prefix, region=ours.region, durable=ours.durable, lease_seconds=ours.lease_seconds
        )
        with run_options(inner):  # a run that a step starts uses the same store
            self._work_off()

    def _work_off(self) -> None:
        while (step := self.jobs.get()) is not None:
            try:
                made = make(self.state, step)
            except BaseException as fault:  # noqa: BLE001  # whatever ends a step is told, never lost in its thread
                self.ended.put(Ended(step.id, None, fault))
            else:
                self.ended.put(Ended(step.id, made, None))

    def _wait(self) -> Ended | None:
        """What ended next. None: nothing yet; look whether a signal came."""
        # Not without limit: the kernel may give a signal to another thread, and that does not wake this one.
        with contextlib.suppress(queue.Empty):
            return self.ended.get(timeout=SIGNAL_SECONDS)
        return None

    def _take_in(self, ended: Ended | None) -> None:
        if ended is None:
            return
        self.busy -= 1
        self.admission.release(ended.id)
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
        self._tell_stopping()
        steps = self.planned.graph.steps
        in_process = {id_ for id_ in self.schedule.running if isinstance(steps[id_].run, RemoteFunction)}
        while in_process & self.schedule.running:
            if len(self.signals) > 1 and not self.state.kill.is_set():
                self.state.kill.set()
                self._tell_stopping()
            self._take_in(self._wait())
        self.state.wait_for_takers()
        for id_, held in list(self.state.held.items()):
            if id_ in self.schedule.running:
                with contextlib.suppress(StoreError, OSError):  # a full disk must not keep us from stopping
                    held.fail("interrupted", None, None)

    def _tell_stopping(self) -> None:
        self.state.reporter.stopping(signal.Signals(self.signals[-1]).name)

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        """SIGINT and SIGTERM stop the run; a second one ends the steps at once. Only on the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            del frame
            # No more than this, and no lock: what it interrupts may be holding it, such as this handler itself.
            self.signals.append(number)
            self.ended.put(None)

        handler = in_this_process(stop)
        before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _error(self) -> RunError:
        lines = [f"{len(self.failures)} of {len(self.planned.to_make)} steps failed:"]
        for failed in self.failures:
            lines.append(f"  {failed.id}: {failed.failure.error}: {failed.failure.message}")
            places = (failed.failure.frame and f"at {failed.failure.frame}", failed.log and f"log: {failed.log}")
            lines += [f"    {place}" for place in places if place]
        if self.blocked:
            lines.append(f"{len(self.blocked)} not made because of them:")
            lines += [f"  {id_} (needs {by})" for id_, by in self.blocked.items()]
        error = RunError("\n".join(lines))
        error.__cause__ = _from_user_code(self.failures[0].cause)
        return error


def _demand(step: Step) -> Demand:
    return Demand.of(step.run.resources) if isinstance(step.run, RemoteFunction) else ONE_CPU


def _usable(state: RunState) -> Capacity:
    """What the steps may use together. Who asks for more steps at a time than there are cores gets that."""
    capacity = state.executor.capacity()
    return dataclasses.replace(capacity, cpus=max(capacity.cpus, state.options.max_concurrent or 0))


def _from_user_code(cause: BaseException | None) -> BaseException | None:
    """``cause`` with a traceback that begins at the user's code: the way there through ours helps nobody."""
    step = cause.__traceback__ if cause is not None else None
    while step is not None and not is_user_code(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    return cause.with_traceback(step) if cause is not None and step is not None else cause
