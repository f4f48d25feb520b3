"""The files through which a worker and its supervisor speak: one folder for each attempt, each file written whole."""

from __future__ import annotations

import contextlib
import os
import pickle
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from marin.execution.manifest import FileEntry, ManifestSummary
from marin.execution.progress import Progress
from marin.execution.step_body import Completed

if TYPE_CHECKING:
    from marin.execution.failure import Failure

CALL_FILE = "call.pickle"
"""Two pickles: the ``sys.path`` of the run, and then, to be read with that path, the call."""

EXCEPTION_FILE = "exception.pickle"
"""The exception that the step raised, if it can be pickled."""

OUTCOME_FILE = "outcome.pickle"

PROGRESS_FILE = "progress.json"

_RESERVED_BYTES = 1 << 16
"""Room for what most steps have to tell in the end, and for the traceback of those that failed."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a call ended. ``completed`` or ``failure`` is given, as ``ended`` says; ``interrupted`` has a failure too.

    ``number``: the ``errno`` of an ``OSError``, as a full disk may have no room for the exception itself.
    """

    ended: Literal["completed", "failed", "interrupted"]
    completed: Completed | None = None
    failure: Failure | None = None
    number: int | None = None


def write_whole(path: str, data: bytes) -> None:
    """Put ``data`` at ``path`` so that a reader sees the old file or the new one. One writer at a time."""
    scratch = f"{path}.new"
    try:
        with open(scratch, "wb") as file:
            file.write(data)
        os.replace(scratch, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


def reserve_outcome(folder: str) -> None:
    """Take the room for an outcome before the step begins, which may leave none on the disk."""
    with contextlib.suppress(OSError):  # then there is none now, and the step will say so
        file = os.open(_scratch(folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, bytes(_RESERVED_BYTES))  # not posix_fallocate, which macOS does not have
        finally:
            os.close(file)


def write_outcome(folder: str, outcome: Outcome) -> None:
    """Tell how the step ended: whole or not at all. On a full disk in the room of the call, which is over."""
    # Of built-in types alone: whatever the step has done to our modules, these can be pickled.
    data = pickle.dumps(asdict(outcome))
    try:
        _write_outcome(folder, data)
    except OSError:
        for name in (CALL_FILE, PROGRESS_FILE, EXCEPTION_FILE):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))
        _write_outcome(folder, data)


def _write_outcome(folder: str, data: bytes) -> None:
    file = os.open(_scratch(folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(data):
            written += os.write(file, data[written:])
        os.ftruncate(file, len(data))
    finally:
        os.close(file)
    os.replace(_scratch(folder), os.path.join(folder, OUTCOME_FILE))


def _scratch(folder: str) -> str:
    return os.path.join(folder, f"{OUTCOME_FILE}.new")


def read_outcome(folder: str) -> Outcome | None:
    """What the worker wrote, or None if it did not come to that."""
    from marin.execution.failure import Failure  # noqa: PLC0415  # the worker, which does not read, is spared this

    try:
        with open(os.path.join(folder, OUTCOME_FILE), "rb") as file:
            told: dict[str, Any] = pickle.load(file)
        completed, failure = told["completed"], told["failure"]
        if completed is not None:
            listed = completed["manifest"]["listed"]
            listed = None if listed is None else tuple(FileEntry(**entry) for entry in listed)
            completed["manifest"] = ManifestSummary(**completed["manifest"] | {"listed": listed})
        return Outcome(
            ended=told["ended"],
            completed=None if completed is None else Completed(**completed),
            failure=None if failure is None else Failure(**failure),
            number=told["number"],
        )
    except Exception:  # noqa: BLE001  # what is torn may say anything
        return None


def write_progress(folder: str, progress: Progress) -> None:
    """Tell how far the step is. A disk that can't be written is no reason to end it."""
    import json  # noqa: PLC0415  # many steps say nothing, and would wait for it in vain

    with contextlib.suppress(Exception):  # a full disk is the step's to report; what it said may be anything
        told: dict[str, float | str] = {"done": float(progress.done), "total": float(progress.total)}
        told |= {"unit": str(progress.unit), "note": str(progress.note)}
        write_whole(os.path.join(folder, PROGRESS_FILE), json.dumps(told).encode())


def read_progress(folder: str) -> Progress | None:
    """The last progress that was told; None before the first."""
    import json  # noqa: PLC0415  # as above

    try:
        with open(os.path.join(folder, PROGRESS_FILE), "rb") as file:
            return Progress(**json.load(file))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # a picture of progress is never worth a failure
