"""A run as the hosts other than host 0 do it: they wait, and take part in the steps that all hosts are to make.

They hold no lease and write no record. Of what they are to do host 0 tells them; what is made they read in the store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from marin.errors import (
    ConfigurationError,
    HostLostError,
    RunError,
    RunInterrupted,
    StepInterruptedError,
    StoreError,
)
from marin.execution.artifact import Artifact
from marin.execution.graph import Step
from marin.execution.held_record import WORKING_UNDER_VARIABLE, nonces_around_us
from marin.execution.observe import check_data, read_record
from marin.execution.planning import Plan
from marin.execution.record import State, log_path
from marin.execution.remote_call import RemoteCall
from marin.execution.remote_function import RemoteFunction
from marin.execution.run_state import RunState
from marin.execution.signals import in_this_process
from marin.execution.step_function import load_function
from marin.execution.step_runner import step_config
from marin.executors.executor import Busy, Claim
from marin.executors.hosts import COORDINATOR_VARIABLE, HostPlace
from marin.executors.roll_call import RollCall
from marin.storage.prefix import PREFIX_VARIABLE

LOOK_SECONDS = 0.1
"""How often a host looks how its processes are."""

LINGER_SECONDS = 30.0
"""So long may its part of a step go on when host 0 has made that step."""

SHORT_SECONDS = 2.0
"""The same when that step has failed there."""


def take_part(state: RunState, planned: Plan, place: HostPlace, hosts: RollCall) -> None:
    """Until host 0 has ended the run. Raises ``RunError`` with its words if that failed, and ``HostLostError``."""
    _Follower(state, planned, place, hosts).follow()


class _Follower:
    def __init__(self, state: RunState, planned: Plan, place: HostPlace, hosts: RollCall) -> None:
        self._state, self._place, self._hosts = state, place, hosts
        self._steps = {str(id_): step for id_, step in planned.graph.steps.items()}
        self._parts = dict[str, _Part]()  # by steps

    def follow(self) -> None:
        with _noted_signals() as signals:
            try:
                while not signals:
                    told = self._hosts.next_news(LOOK_SECONDS)
                    for part in self._parts.values():
                        part.look()
                    if told is not None and self._is_last(told[1]):
                        return
                for part in self._parts.values():
                    part.stop()
                name = signal.Signals(signals[0]).name
                raise RunInterrupted(f"the run was stopped by {name} on this host", 128 + signals[0])
            finally:
                for part in self._parts.values():
                    part.close()

    def _is_last(self, news: dict[str, Any]) -> bool:
        if "begins" in news:
            self._end(news["begins"], is_made=False)
            step = self._steps[news["begins"]]
            self._parts[news["begins"]] = _Part(self._state, step, news, self._place, self._hosts)
        elif "step" in news:
            self._end(news["step"], is_made=news["build_id"] is not None)
            if news["build_id"] is not None:
                self._use(self._steps[news["step"]], news["build_id"])
        else:
            self._hosts.end_together()
            if news["ended"] is None:
                return True
            for name in list(self._parts):
                self._end(name, is_made=False)
            if news["code"] is not None:
                raise RunInterrupted(news["ended"], news["code"])
            print(news["ended"], file=sys.stderr, flush=True)  # nothing has shown here which steps failed, and why
            raise RunError(f"on host 0: {news['ended']}")
        return False

    def _end(self, name: str, *, is_made: bool) -> None:
        """Host 0 has ended the step: so will this part, in a moment; if the step has failed, it is told to."""
        if (part := self._parts.get(name)) is not None:
            part.linger(LINGER_SECONDS if is_made else SHORT_SECONDS)
            part.stop()
            part.close()
            del self._parts[name]

    def _use(self, step: Step, build_id: str) -> None:
        record = read_record(self._state.store, step.id)
        if record is None or record.build is None or record.build.build_id != build_id:
            raise StoreError(
                f"{step.id}: host 0 has made build {build_id}, and this host does not see it in {self._state.prefix}: "
                "all hosts need one shared store"
            )
        check_data(self._state.store, record, record.build)
        self._state.builds[step.id] = record.build


class _Part:
    """This host's process of one attempt of host 0."""

    def __init__(self, state: RunState, step: Step, news: dict[str, Any], place: HostPlace, hosts: RollCall) -> None:
        self._state, self._step, self._news, self._place, self._hosts = state, step, news, place, hosts
        assert isinstance(step.run, RemoteFunction)
        self._remote = step.run
        self._scratch = tempfile.mkdtemp(prefix="marin-host-")
        self._claim: Claim | None = None
        self._call: RemoteCall | None = None
        self._renewed = 0.0
        self._over = False

    def look(self) -> None:
        """Start the process as soon as its devices are free, let it live on, and tell host 0 if it fails."""
        if self._over:
            return
        try:
            if self._call is None:
                self._try_to_start()
                return
            if time.monotonic() - self._renewed > self._state.options.lease_seconds / 3:
                self._renewed = time.monotonic()
                self._call.renew(self._state.options.lease_seconds)
            self._over = self._call.poll() is not None
        except (StepInterruptedError, HostLostError):
            self._over = True  # host 0 knows
        except Exception as fault:  # noqa: BLE001  # whatever it is, host 0 must not wait for this part
            self._over = True
            self._hosts.tell({"build_id": self._news["build_id"], "fault": f"{type(fault).__name__}: {fault}"})

    def stop(self) -> None:
        """Tell the process to save its work, and see it end."""
        if self._call is not None and not self._over:
            self._call.cancel(self._remote.grace)
            self._until_over(self._remote.grace + LINGER_SECONDS)

    def linger(self, seconds: float) -> None:
        """Wait for the end of the process, but not longer than that."""
        if self._call is not None:
            self._until_over(seconds)

    def close(self) -> None:
        """End what still runs, and let go of all."""
        if self._call is not None:
            self._call.close()
        if self._claim is not None:
            self._claim.release()
        self._call = self._claim = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _until_over(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._call is not None and not self._over and time.monotonic() < deadline:
            with contextlib.suppress(Exception):  # ``look`` sees the same
                self._call.wait(LOOK_SECONDS)
            self.look()

    def _try_to_start(self) -> None:
        if self._claim is None:
            claim = self._state.executor.claim(self._remote.resources, ())
            if isinstance(claim, Busy):
                return
            self._claim = claim
        self._check_attempt()
        step, url, build_id = self._step, self._state.store.url, self._news["build_id"]
        around = nonces_around_us() | {self._news["nonce"]}
        log = url(log_path(step.id.address, build_id)).removesuffix(".log") + f".host-{self._place.index}.log"
        self._call = RemoteCall.start(
            self._state.executor,
            name=str(step.id),
            function=_Taking(self._remote.function),
            config=step_config(self._state, step, build_id),
            artifact_type=Artifact,
            output_path=os.path.join(self._scratch, "output"),
            job_folder=os.path.join(self._scratch, "job"),
            log_path=log,
            env={
                **self._remote.unset_env(),
                PREFIX_VARIABLE: self._state.prefix,
                WORKING_UNDER_VARIABLE: ",".join(sorted(around)),
                COORDINATOR_VARIABLE: self._place.beside(self._news["port"]),
                **self._claim.env,
            },
            lease_seconds=self._state.options.lease_seconds,
            log_bytes=self._state.options.log_bytes,
            claim=self._claim,
        )
        os.makedirs(os.path.join(self._scratch, "output"))
        self._renewed = time.monotonic()

    def _check_attempt(self) -> None:
        """Raise unless host 0 builds what this host was asked for."""
        record = read_record(self._state.store, self._step.id)
        attempt = record.attempt if record is not None and record.state is State.BUILDING else None
        if attempt is None or attempt.build_id != self._news["build_id"]:
            raise StoreError(
                f"host 0 builds {self._step.id}, and this host does not see that in {self._state.prefix}: all hosts "
                "need one shared store"
            )
        if attempt.fingerprint_digest != self._step.fingerprint().digest:
            raise ConfigurationError(
                f"host 0 builds another {self._step.id} than this host was asked for: start the same script on all "
                "hosts"
            )


@dataclass(frozen=True)
class _Taking:
    """A step function whose artifact host 0 publishes: what it returns here is nobody's."""

    function: Callable[[Any], Any] | str

    def __call__(self, config: Any) -> Artifact:
        load_function(self.function)(config)
        return Artifact()


@contextlib.contextmanager
def _noted_signals() -> Generator[list[int]]:
    """SIGINT and SIGTERM, as they come. Only on the main thread."""
    noted = list[int]()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        noted.append(number)

    before = {number: signal.signal(number, in_this_process(note)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
