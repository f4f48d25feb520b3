"""The process of one step, which is given its job folder.

It reads the call from the job folder, runs it, and writes there how it ended. That it ends with its supervisor is the
executor's matter. SIGTERM becomes a ``KeyboardInterrupt`` in the main thread, so that a step can save its work.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import io
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, NoReturn

from marin.errors import RunInterrupted
from marin.execution import job_files
from marin.execution.artifact import Artifact
from marin.execution.job_files import Outcome
from marin.execution.progress import Progress, process_progress_sink
from marin.execution.signals import in_this_process
from marin.execution.step_body import Completed, execute
from marin.execution.step_function import load_function

PROGRESS_SECONDS = 0.25
"""How often progress is written if it is reported all the time."""

_PROGRESS_BURST = 4


class ProgressFile:
    """Writes reports into the job folder: a few at once, a stream of them thinned out, and always the last.

    There is no thread that writes later: a step may fork, and a process with threads should not.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._unwritten: Progress | None = None
        self._credit = float(_PROGRESS_BURST)
        self._seen_at = time.monotonic()

    def report(self, progress: Progress) -> None:
        now = time.monotonic()
        self._credit = min(_PROGRESS_BURST, self._credit + (now - self._seen_at) / PROGRESS_SECONDS)
        self._seen_at = now
        self._unwritten = progress
        if self._credit >= 1:
            self._credit -= 1
            self.flush()

    def flush(self) -> None:
        """Write the last report if it was held back."""
        if self._unwritten is not None:
            job_files.write_progress(self._folder, self._unwritten)
            self._unwritten = None


def main(folder: str) -> int:
    """Run the call in ``folder``: the exit code, 0 if it completed."""
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Whole lines, at once, and no character that could make a print fail.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True, write_through=False)
    progress = ProgressFile(folder)
    path = list(sys.path)
    job_files.reserve_outcome(folder)
    try:
        signal.signal(signal.SIGTERM, in_this_process(_interrupt))
        with process_progress_sink(progress.report):
            outcome = Outcome(ended="completed", completed=_run(folder))
    except BaseException as fault:  # noqa: BLE001  # whatever it is, sys.exit as well: the supervisor is told
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.path[:] = path  # the step may have changed it
        _close_files(fault)
        from marin.execution.failure import Failure  # noqa: PLC0415  # only a failed step needs it, and it imports much

        ended = "interrupted" if isinstance(fault, KeyboardInterrupt) else "failed"
        # Whoever makes an OSError may put anything there.
        number = int(fault.errno) if isinstance(fault, OSError) and isinstance(fault.errno, int) else None
        outcome = Outcome(ended=ended, failure=Failure.from_exception(fault), number=number)
        _keep_exception(folder, fault)
        _say(outcome.failure.traceback if outcome.failure else "")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    progress.flush()
    job_files.write_outcome(folder, outcome)
    return 0 if outcome.ended == "completed" else 1


def _close_files(fault: BaseException) -> None:
    """Let go of what a step has opened that opened too much: what is left to do needs some files too."""
    if isinstance(fault, OSError) and fault.errno == errno.EMFILE:
        traceback = fault.__traceback__
        while traceback is not None:
            with contextlib.suppress(RuntimeError):  # of ours, which still runs
                traceback.tb_frame.clear()
            traceback = traceback.tb_next


def _run(folder: str) -> Completed:
    with open(os.path.join(folder, job_files.CALL_FILE), "rb") as file:
        sys.path[:] = pickle.load(file)
        call: dict[str, Any] = pickle.load(file)
    if call["artifact_type"] is not Artifact:
        importlib.import_module("marin.execution.results")  # now, as the step may change what can be imported
    function = load_function(call["function"])
    _restore_main(function)
    return execute(
        function,
        call["config"],
        artifact_type=call["artifact_type"],
        output_path=call["output_path"],
        resumes=True,
    )


def _restore_main(function: Callable[[Any], Any]) -> None:
    """Let what a script's step function uses be found in ``__main__``, where its own process pool looks for it."""
    names = getattr(function, "__globals__", {})
    if names.get("__name__") == "__main__":
        script = ModuleType("__main__")
        script.__dict__.update(names)
        sys.modules["__main__"] = script


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise RunInterrupted("the step was told to stop", exit_code=128 + number)


def _keep_exception(folder: str, fault: BaseException) -> None:
    """Pickle ``fault`` for the supervisor, if that can be done. Its text is kept in any case."""
    if not isinstance(fault, Exception):
        return
    try:
        import cloudpickle  # noqa: PLC0415  # needed only for a failed step

        data = cloudpickle.dumps(fault)
        with open(os.path.join(folder, job_files.EXCEPTION_FILE), "wb") as file:
            file.write(data)
    except BaseException as unpicklable:  # noqa: BLE001  # pickling runs the exception's own code
        _say(f"marin: {type(fault).__name__} is told by its text only: {unpicklable}")


def _say(text: str) -> None:
    """Into the log, if that can be written: the supervisor is told in any case."""
    with contextlib.suppress(OSError, ValueError):  # a full disk; a stream that the step has closed
        print(text, file=sys.stderr, flush=True)
