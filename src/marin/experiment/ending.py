"""How a command ends: what is said, and with which exit code. 0 well, 1 failed, 2 wrong usage, 130 and 143 stopped."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import TextIO, cast

import marin
from marin.errors import MarinError, RunError, RunInterrupted
from marin.execution.failure import Failure, is_user_code, shown_frame
from marin.execution.redaction import shown_place

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

_OURS = Path(marin.__file__).parent
_RUNNING = (str(_OURS / "execution" / "runner.py"), str(_OURS / "experiment" / "main.py"))
"""Where handles are run: what fails in there is no matter of the line that called it."""


def is_expected(fault: BaseException) -> bool:
    """Whether a person who did not write Marin can act on ``fault`` without a traceback."""
    if isinstance(fault, BaseExceptionGroup):
        return all(is_expected(inner) for inner in cast("BaseExceptionGroup[BaseException]", fault).exceptions)
    return isinstance(fault, MarinError | KeyboardInterrupt)


def tell_fault(fault: BaseException, stream: TextIO) -> int:
    """Say what ended the command, and give the exit code for it. What is not expected gets its traceback."""
    if isinstance(fault, RunInterrupted):
        print(fault, file=stream)
        return fault.exit_code
    if isinstance(fault, KeyboardInterrupt):
        print("interrupted", file=stream)
        return EXIT_INTERRUPTED
    if not is_expected(fault):
        traceback.print_exception(type(fault), fault, _user_traceback(fault), file=stream)
    elif isinstance(fault, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", fault).exceptions:
            tell_fault(inner, stream)
    elif isinstance(fault, RunError):
        # The reporter has shown the failed steps; the message lists them again for those who catch it.
        print(f"error: {str(fault).partition(chr(10))[0].rstrip(':')}", file=stream)
    else:
        print(f"error: {shown_place(str(fault))}", file=stream)
        if place := _place_in_script(fault):
            print(f"  at {place}", file=stream)
        cause = fault.__cause__
        if cause is not None and not isinstance(cause, MarinError | OSError):
            failure = Failure.from_exception(cause)
            where = f" at {failure.frame}" if failure.frame else ""
            print(f"  caused by {failure.error}: {failure.message}{where}", file=stream)
    return EXIT_FAILED


def _place_in_script(fault: BaseException) -> str | None:
    """The innermost line of the user's code, where it made something; ``None`` where it only called for the run."""
    place: str | None = None
    trace = fault.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_user_code(file) and not file.startswith("<"):  # such as the __init__ that a dataclass gets
            place = shown_frame(file, trace.tb_lineno, trace.tb_frame.f_code.co_name)
        elif file in _RUNNING:
            place = None
        trace = trace.tb_next
    return place


def _user_traceback(fault: BaseException) -> TracebackType | None:
    """The traceback without the frames of the command that come before the script; all of it if there is no more."""
    commands = str(_OURS / "cli")
    trace = fault.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(commands):
        trace = trace.tb_next
    return trace or fault.__traceback__
