"""The supervisor's side of a step that runs in a process of its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from marin import errors
from marin.errors import StepError, StepInterruptedError, StoreError
from marin.execution import job_files, post_mortem
from marin.execution.artifact import Artifact
from marin.execution.failure import Failure
from marin.execution.progress import Progress
from marin.execution.sendable import check_sendable as check_sendable  # where users of this module look for it
from marin.execution.sendable import dumped
from marin.execution.step_body import Completed
from marin.executors.executor import LOG_BYTES, Claim, Executor, JobSpec, JobState
from marin.storage.faults import translated_faults

START = "import sys; from marin.execution.worker import main; sys.exit(main(sys.argv[1]))"
"""Not ``-m``, which imports more of Python before it begins."""

EXIT_SECONDS = 10.0
"""How long a worker may take to exit after its answer; a forgotten thread would keep it for ever."""

CLOSE_SECONDS = 30.0
"""How long ``close`` waits for a process that it has killed."""


@dataclass(slots=True)
class RemoteCall:
    """A call of a step function in a process that an executor runs. Made by ``start``; threads may share it."""

    name: str
    log_path: str
    _executor: Executor
    _job: str
    _job_folder: str
    _log_start: int
    _oom_kills: int | None
    _answered_at: float | None = None
    _cancelled: bool = False

    @classmethod
    def start(
        cls,
        executor: Executor,
        *,
        name: str,
        function: Callable[[Any], Any] | str,
        config: Any,
        artifact_type: type[Artifact],
        output_path: str,
        job_folder: str,
        log_path: str,
        env: Mapping[str, str],
        lease_seconds: float,
        log_bytes: int = LOG_BYTES,
        claim: Claim | None = None,
    ) -> RemoteCall:
        """Start ``function(config)`` with our ``sys.path``, working folder and environment, and ``env`` on top.

        ``job_folder`` must not exist; it is made, and ``close`` removes it. Unless ``renew`` is called, the process
        ends after ``lease_seconds``. Raises, before anything has started, ``UnpicklableStepError``, and ``StoreError``
        if the job folder can't be written.
        """
        call = dumped(name, function=function, config=config, artifact_type=artifact_type, output_path=output_path)
        # For our eyes only: a config may hold what is no one else's business.
        with translated_faults(job_folder, writing=True):
            os.makedirs(job_folder, mode=0o700)
        try:
            call_file = os.path.join(job_folder, job_files.CALL_FILE)
            with translated_faults(call_file, writing=True), open(call_file, "wb") as file:
                file.write(pickle.dumps([str(entry) for entry in sys.path]))
                file.write(call)
            log_start = os.path.getsize(log_path) if os.path.exists(log_path) else 0
            oom_kills = post_mortem.count_oom_kills()
            job = executor.submit(
                JobSpec(
                    name=name,
                    argv=(sys.executable, "-P", "-c", START, os.path.abspath(job_folder)),
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
                    cwd=os.getcwd(),
                    log_path=log_path,
                    lease_seconds=lease_seconds,
                    log_bytes=log_bytes,
                    claim=claim or Claim(),
                )
            )
        except BaseException:
            shutil.rmtree(job_folder, ignore_errors=True)
            raise
        return cls(name, log_path, executor, job, job_folder, log_start, oom_kills)

    def poll(self) -> Completed | None:
        """What the step made, or None while it runs.

        Raises what the step raised, with the traceback from there as a note, or ``StepError`` with the same text if
        that can't be brought here; ``StepInterruptedError``; ``WorkerDiedError`` for a process that ended without an
        answer; ``LeaseLostError`` if it was not renewed in time.
        """
        return self._answer(self._executor.poll(self._job))

    def wait(self, timeout: float) -> Completed | None:
        """``poll``, but not before the process has ended or ``timeout`` seconds have passed."""
        return self._answer(self._executor.wait(self._job, timeout))

    def progress(self) -> Progress | None:
        """The last progress that the step has reported, or None."""
        return job_files.read_progress(self._job_folder)

    def renew(self, seconds: float) -> None:
        """Let the process live for ``seconds`` from now without another renewal."""
        self._executor.renew(self._job, seconds)

    def cancel(self, grace_seconds: float) -> None:
        """Tell the step to stop, and kill what is left of it after ``grace_seconds``. Returns at once."""
        self._cancelled = True
        self._executor.cancel(self._job, grace_seconds)

    def close(self) -> None:
        """Remove the job folder. A process that still runs is killed first."""
        if self._executor.poll(self._job).running:
            self._executor.cancel(self._job, 0)
            self._executor.wait(self._job, CLOSE_SECONDS)
        shutil.rmtree(self._job_folder, ignore_errors=True)

    def _answer(self, state: JobState) -> Completed | None:
        if state.running:
            self._hasten_exit()
            return None
        outcome = job_files.read_outcome(self._job_folder)
        if outcome is None:
            self._raise_death(state)
        if outcome.completed is not None:
            return outcome.completed
        failure = outcome.failure
        assert failure is not None
        if outcome.ended == "interrupted":
            raise failure.carried_by(StepInterruptedError(f"{self.name}: {failure.error}: {failure.message}"))
        raise self._original(failure, outcome.number)

    def _hasten_exit(self) -> None:
        """End a process that has answered, but does not exit. What it answered counts."""
        if not os.path.exists(os.path.join(self._job_folder, job_files.OUTCOME_FILE)):
            return
        now = time.monotonic()
        if self._answered_at is None:
            self._answered_at = now
        elif now - self._answered_at > EXIT_SECONDS:
            self._executor.cancel(self._job, 0)

    def _raise_death(self, state: JobState) -> NoReturn:
        oom_kills = post_mortem.count_oom_kills()
        if self._cancelled and state.reason is None:
            # It was quick to follow: the signal came before the worker could record it.
            state = JobState(running=False, exit_code=state.exit_code, signal=state.signal, reason="cancelled")
        raise post_mortem.explain_death(
            self.name,
            state,
            log=post_mortem.read_log(self.log_path, self._log_start),
            log_path=self.log_path,
            oom_kills=None if oom_kills is None or self._oom_kills is None else oom_kills - self._oom_kills,
            is_folder_gone=not os.path.isdir(self._job_folder),
        )

    def _original(self, failure: Failure, number: int | None) -> Exception:
        original: Any = None
        # Unpickling runs code of the exception's module: if that fails here, there is still the text.
        with contextlib.suppress(Exception):
            with open(os.path.join(self._job_folder, job_files.EXCEPTION_FILE), "rb") as file:
                original = pickle.load(file)
        if not isinstance(original, Exception):
            original = _rebuilt(failure, number)
        with contextlib.suppress(Exception):
            original.add_note(f"In the process of {self.name}, log {self.log_path}:\n{failure.traceback}")
        return failure.carried_by(original)


def _rebuilt(failure: Failure, number: int | None) -> Exception:
    """In place of an exception that did not come through: of a kind that is tried again no more often than that one."""
    if number is not None:
        return OSError(number, failure.message)
    kind = getattr(errors, failure.error, None)
    if isinstance(kind, type) and issubclass(kind, StoreError):
        return kind(failure.message)
    return StepError(f"{failure.error}: {failure.message}")
