"""How a command ends: what is said, and with which exit code. 0 well, 1 failed, 2 wrong usage, 130 and 143 stopped."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import TextIO, cast

import marin
from marin.errors import MarinError, RunError, RunInterrupted
from marin.execution.failure import Failure

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


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
        print(f"error: {fault}", file=stream)
        cause = fault.__cause__
        if cause is not None and not isinstance(cause, MarinError | OSError):
            failure = Failure.from_exception(cause)
            print(f"  caused by {failure.error}: {failure.message} at {failure.frame}", file=stream)
    return EXIT_FAILED


def _user_traceback(fault: BaseException) -> TracebackType | None:
    """The traceback without the frames of the command that come before the script; all of it if there is no more."""
    commands = str(Path(marin.__file__).parent / "cli")
    trace = fault.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(commands):
        trace = trace.tb_next
    return trace or fault.__traceback__
