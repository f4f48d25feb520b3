"""The error at the end of a run in which steps have failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marin.errors import RunError
from marin.execution.events import FailedStep
from marin.execution.failure import is_user_code
from marin.execution.identity import ArtifactId


def run_error(failures: Sequence[FailedStep], blocked: Mapping[ArtifactId, ArtifactId], *, steps: int) -> RunError:
    """Lists what failed, of so many steps, and what was not made because of it. Its cause is the first failure's."""
    lines = [f"{len(failures)} of {steps} steps failed:"]
    for failed in failures:
        lines.append(f"  {failed.id}: {failed.failure.error}: {failed.failure.message}")
        places = (failed.failure.frame and f"at {failed.failure.frame}", failed.log and f"log: {failed.log}")
        lines += [f"    {place}" for place in places if place]
    if blocked:
        lines.append(f"{len(blocked)} not made because of them:")
        lines += [f"  {id_} (needs {by})" for id_, by in blocked.items()]
    error = RunError("\n".join(lines))
    error.__cause__ = _from_user_code(failures[0].cause)
    return error


def _from_user_code(cause: BaseException | None) -> BaseException | None:
    """``cause`` with a traceback that begins at the user's code: the way there through ours helps nobody."""
    step = cause.__traceback__ if cause is not None else None
    while step is not None and not is_user_code(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    return cause.with_traceback(step) if cause is not None and step is not None else cause
