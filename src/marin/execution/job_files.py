"""The files through which a worker and its supervisor speak: one folder for each attempt, each file written whole."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

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


def write_outcome(folder: str, outcome: Outcome) -> None:
    """Tell how the step ended: whole or not at all. On a full disk in the room of the call, which is over."""
    data = pickle.dumps(outcome)
    try:
        write_whole(os.path.join(folder, OUTCOME_FILE), data)
    except OSError:
        for name in (CALL_FILE, PROGRESS_FILE, EXCEPTION_FILE):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))
        write_whole(os.path.join(folder, OUTCOME_FILE), data)


def read_outcome(folder: str) -> Outcome | None:
    """What the worker wrote, or None if it did not come to that."""
    try:
        with open(os.path.join(folder, OUTCOME_FILE), "rb") as file:
            outcome = pickle.load(file)
    except Exception:  # noqa: BLE001  # what is torn may say anything
        return None
    return outcome if isinstance(outcome, Outcome) else None


def write_progress(folder: str, progress: Progress) -> None:
    """Tell how far the step is. A disk that can't be written is no reason to end it."""
    with contextlib.suppress(OSError):  # a full disk is the step's to report
        write_whole(os.path.join(folder, PROGRESS_FILE), json.dumps(asdict(progress)).encode())


def read_progress(folder: str) -> Progress | None:
    """The last progress that was told; None before the first."""
    try:
        with open(os.path.join(folder, PROGRESS_FILE), "rb") as file:
            return Progress(**json.load(file))
    except (FileNotFoundError, ValueError, TypeError):
        return None  # a picture of progress is never worth a failure
