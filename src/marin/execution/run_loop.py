"""Carries out a plan in threads, each of which looks after one step at a time."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import queue
import signal
import threading
import time
from collections.abc import Generator
from types import FrameType

from marin.errors import RunInterrupted, StoreError
from marin.execution.events import FailedStep
from marin.execution.failure import Failure
from marin.execution.graph import Step
from marin.execution.identity import ArtifactId
from marin.execution.observe import observe_step
from marin.execution.options import RunOptions, run_options
from marin.execution.pace import TICK_SECONDS, wanted_threads
from marin.execution.planning import Plan
from marin.execution.remote_function import RemoteFunction
from marin.execution.run_error import run_error
from marin.execution.run_state import RunState, Stopped
from marin.execution.schedule import Schedule
from marin.execution.signals import in_this_process
from marin.execution.step_runner import Made, make
from marin.executors.capacity import ONE_CPU, UNLIMITED, Admission, Capacity, Demand

SIGNAL_SECONDS = 0.2
"""How late a signal may be noticed that another thread has got."""


class RunLoop:
    """Carries out a plan: threads take what is ready and say how it ended; the main one sees to signals and pace.

    A thread that has ended a step takes the next one itself, so that a chain of short steps is handed to nobody, and
    calls another thread if there is more. ``wanted_threads`` says how many are good.
    """

    def __init__(self, state: RunState, planned: Plan) -> None:
        self.state = state
        self.planned = planned
        making = {step.id for step in planned.to_make}
        self.schedule = Schedule({id_: planned.graph.deps[id_] for id_ in planned.graph.steps if id_ in making})
        self.admission = Admission[ArtifactId](_usable(state), state.options.max_concurrent or UNLIMITED)
        self.failures: list[FailedStep] = []
        self.blocked: dict[ArtifactId, ArtifactId] = {}
        self.signals: list[int] = []
        state.abandon = self._abandon
        self._context = contextvars.copy_context()  # what surrounds the run surrounds its steps
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # of the main thread; a signal handler may put
        self._changed = threading.Condition()  # guards what follows, and all of the above but the signals
        self._threads = 0
        self._idle = 0
        self._wanted = 1
        self._taken = 0
        self._taken_before = -1
        self._began: dict[ArtifactId, float] = {}
        self._is_dozing = False
        self._is_over = False
        self._breakdown: BaseException | None = None

    def carry_out(self) -> None:
        try:
            with self._signals():
                while not self.schedule.done and not self.signals:
                    self._keep_pace()
                    if self._breakdown is not None:
                        raise self._breakdown
                if self.signals:
                    self._wind_up()
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            self.state.keeper.stop()
            self.state.reporter.ended(interrupted=bool(self.signals))
        if self.signals:
            name = signal.Signals(self.signals[0]).name
            raise RunInterrupted(f"the run was stopped by {name}; what was finished is kept", 128 + self.signals[0])
        if self.failures:
            raise run_error(self.failures, self.blocked, steps=len(self.planned.to_make))

    def _keep_pace(self) -> None:
        """Wait for a moment, or for something to do; then think about how many threads are good."""
        with self._changed:
            self._call_another()
            waiting = self.schedule.ready_count > 0 and (self._wanted < UNLIMITED or self._taken > self._taken_before)
            self._taken_before = self._taken
            self._is_dozing = not waiting
            taken, begin, used = self._taken, time.monotonic(), time.process_time()
        self._doze(TICK_SECONDS if waiting else SIGNAL_SECONDS)
        seconds = time.monotonic() - begin
        if not waiting or seconds < TICK_SECONDS / 2:
            return
        with self._changed:
            self._wanted = wanted_threads(
                UNLIMITED,
                taken=self._taken - taken,
                long=sum(began < begin for began in self._began.values()),
                busy=len(self._began),
                processor_share=(time.process_time() - used) / seconds,
            )

    def _doze(self, seconds: float) -> None:
        # Not without limit: the kernel may give a signal to another thread, and that does not wake this one.
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=seconds)

    def _call_another(self) -> None:
        """If more is ready: call a thread for it, if that is good; else the main one, if it has stopped looking."""
        if self.schedule.ready_count == 0:
            return
        if len(self._began) >= self._wanted:
            if self._is_dozing and self._wanted < UNLIMITED:
                self._is_dozing = False
                self._wake.put(None)
        elif self._idle:
            self._changed.notify()
        elif self._threads <= len(self._began):
            self._threads += 1
            name = f"marin-step-{self._threads}"
            threading.Thread(target=self._context.copy().run, args=(self._work,), name=name, daemon=True).start()

    def _work(self) -> None:
        ours = self.state.options
        inner = RunOptions(
            prefix=self.state.prefix, region=ours.region, durable=ours.durable, lease_seconds=ours.lease_seconds
        )
        with run_options(inner):  # a run that a step starts uses the same store
            self._work_off()

    def _work_off(self) -> None:
        try:
            while (step := self._next_step()) is not None:
                try:
                    made = make(self.state, step)
                except BaseException as fault:  # noqa: BLE001  # whatever ends a step is told
                    counts = self._take_in_fault(step.id, fault)
                else:
                    counts = self._take_in(step.id, made)
                if not counts:
                    return  # the run has gone on, or has ended, without this thread
        except BaseException as fault:  # noqa: BLE001  # not the step's, ours: the main thread raises it
            self._breakdown = fault
            self._wake.put(None)

    def _next_step(self) -> Step | None:
        """What this thread does next; waits for it. None: there will be nothing any more."""
        with self._changed:
            while not (self._is_over or self.signals or self.schedule.done):
                if len(self._began) < self._wanted and (step := self._admitted()) is not None:
                    self._began[step.id] = time.monotonic()
                    self._taken += 1
                    self._call_another()
                    return step
                self._idle += 1
                try:
                    self._changed.wait()
                finally:
                    self._idle -= 1
            return None

    def _admitted(self) -> Step | None:
        """The first that is ready and fits beside what runs. What does not fit stays next, its needs kept for it."""
        round_ = self.admission.begin_round()
        passed_over: list[ArtifactId] = []
        admitted: Step | None = None
        while admitted is None and round_.is_open and (id_ := self.schedule.pop_ready()) is not None:
            step = self.planned.graph.steps[id_]
            if round_.admit(id_, _demand(step)):
                admitted = step
                if gpus := self.admission.gpus_of(id_):
                    self.state.gpus[id_] = gpus
            else:
                passed_over.append(id_)
        if passed_over:
            self.schedule.put_back(passed_over)
        return admitted

    def _take_in(self, id_: ArtifactId, made: Made) -> bool:
        """False: the run has gone on without the step, and whatever it made does not count."""
        with self._changed:
            if self._is_over or id_ not in self._began:
                return False
            del self._began[id_]
            self.admission.release(id_)
            self.state.builds[id_] = made.build
            self.schedule.finish(id_)
            self.state.crew.ended(id_, made.build.build_id)
            self.state.reporter.finished(id_, made.outcome, seconds=made.build.seconds, path=self.state.path(id_))
            self._note_end()
            return True

    def _abandon(self, id_: ArtifactId, fault: BaseException) -> None:
        """Go on without the thread that runs this step; another one takes its place."""
        if self._take_in_fault(id_, fault):
            with self._changed:
                self._threads -= 1
                self._call_another()

    def _take_in_fault(self, id_: ArtifactId, fault: BaseException) -> bool:
        failed = None if isinstance(fault, Stopped) else self._failed_step(id_, fault)
        with self._changed:
            if self._is_over or id_ not in self._began:
                return False
            del self._began[id_]
            self.admission.release(id_)
            blocked = self.schedule.fail(id_)
            self.state.crew.ended(id_, None)
            if failed is not None:
                self.failures.append(failed)
                self.state.reporter.failed(failed)
                self._note_blocked(blocked, id_)
                if self.state.options.fail_fast:
                    self._note_blocked(self.schedule.abandon_waiting(), id_)
            self._note_end()
            return True

    def _note_blocked(self, blocked: list[ArtifactId], by: ArtifactId) -> None:
        for id_ in blocked:
            self.blocked[id_] = by
            self.state.reporter.blocked(id_, by=by)

    def _note_end(self) -> None:
        """A step has ended: whoever waits for that looks again."""
        if self.schedule.done or self.signals:
            self._wake.put(None)

    def _failed_step(self, id_: ArtifactId, fault: BaseException) -> FailedStep:
        failure = Failure.from_exception(fault).of(id_)
        seen = observe_step(self.state.store, self.planned.graph.steps[id_])
        log = seen.record.attempt.log if seen.record is not None and seen.record.attempt is not None else None
        return FailedStep(
            id=id_, failure=failure, log=self.state.store.url(log) if log is not None else None, cause=fault
        )

    def _wind_up(self) -> None:
        """Stopped by a signal: processes are ended and waited for; a thread can't be ended, its step is given up."""
        self.state.stop.set()
        self._tell_stopping()
        steps = self.planned.graph.steps
        while any(isinstance(steps[id_].run, RemoteFunction) for id_ in self._running()):
            if len(self.signals) > 1 and not self.state.kill.is_set():
                self.state.kill.set()
                self._tell_stopping()
            self._doze(SIGNAL_SECONDS)
        self.state.wait_for_takers()
        running = self._running()
        for id_, held in list(self.state.held.items()):
            if id_ in running:
                with contextlib.suppress(StoreError, OSError):  # a full disk must not keep us from stopping
                    held.fail("interrupted", None, None)

    def _running(self) -> list[ArtifactId]:
        with self._changed:
            return list(self._began)

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
            self._wake.put(None)

        handler = in_this_process(stop)
        before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _demand(step: Step) -> Demand:
    return Demand.of(step.run.resources) if isinstance(step.run, RemoteFunction) else ONE_CPU


def _usable(state: RunState) -> Capacity:
    """What the steps may use together. Who asks for more steps at a time than there are cores gets that."""
    capacity = state.executor.capacity()
    return dataclasses.replace(capacity, cpus=max(capacity.cpus, state.options.max_concurrent or 0))
