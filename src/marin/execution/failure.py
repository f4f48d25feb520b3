"""How a step failed, as text: what a record, a table and another process can keep of an exception."""

from __future__ import annotations

import contextlib
import importlib
import os
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import marin
from marin.errors import MarinError
from marin.execution.identity import ArtifactId
from marin.execution.redaction import redact_text, secret_values

E = TypeVar("E", bound=BaseException)

MAX_MESSAGE = 10_000
"""Characters of a message that are kept. Its beginning and its end say what it is about."""

MAX_TRACEBACK = 100_000
"""Characters of a traceback that are kept."""

_MAX_CHAIN = 100
_GENERATED = ("<string>", "__init__")  # of a dataclass; the frame above is the one that people wrote
_CARRIED = "_marin_failure"

_OURS = str(Path(marin.__file__).parent)
_LIBRARY_FOLDERS = tuple(
    {sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")} | {_OURS + os.sep}
)
_ON_THE_WAY = (
    os.path.join(_OURS, "execution") + os.sep,
    os.path.dirname(importlib.__file__) + os.sep,
    "<frozen importlib",
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What is known of an exception.

    - ``error``: the name of its class; ``message``: its text.
    - ``frame``: where in the user's code it happened, ``file.py:12 in train``; empty if nowhere.
    - ``traceback``: the whole of it, with causes and notes.

    >>> Failure.from_exception(ValueError("no poems")).message
    'no poems'
    """

    error: str
    message: str
    frame: str
    traceback: str

    @classmethod
    def from_exception(cls, exception: BaseException) -> Failure:
        """Never raises, whatever the exception: its text may be broken, endless or very long. Secrets are left out.

        An exception that came from another process keeps the failure that was seen there.
        """
        carried = vars(exception).get(_CARRIED)
        if isinstance(carried, cls):
            return carried
        secrets = secret_values(os.environ)
        return cls(
            error=type(exception).__name__,
            message=redact_text(shortened(_message(exception), MAX_MESSAGE), secrets),
            frame=_first_user_frame(exception),
            traceback=redact_text(shortened(_traceback(exception), MAX_TRACEBACK), secrets),
        )

    def of(self, id_: ArtifactId) -> Failure:
        """The same, to be shown beside ``id_``: a message that begins with it does not say it again."""
        said = str(id_)
        message = self.message.removeprefix(f"{said}: ").removeprefix(f"{said} ")
        return self if message == self.message else replace(self, message=message)

    def carried_by(self, exception: E) -> E:
        """``exception``, whose ``Failure.from_exception`` is this from now on: its own frames say nothing."""
        with contextlib.suppress(Exception):  # a class of the user's may allow no attributes
            setattr(exception, _CARRIED, self)
        return exception


def is_user_code(file: str) -> bool:
    """Whether ``file`` belongs neither to Marin nor to Python nor to an installed library."""
    if file.startswith("<"):
        return file.startswith(("<stdin>", "<string>", "<ipython"))
    return not file.startswith(_LIBRARY_FOLDERS) and "site-packages" not in file and "dist-packages" not in file


def shown_frame(file: str, line: int, function: str) -> str:
    """``file.py:12 in train``; the file as it is called from the working folder, if it lies there."""
    try:
        inside = os.path.relpath(file)
    except (OSError, ValueError):
        inside = os.pardir  # the working folder is gone
    return f"{file if inside.startswith(os.pardir) or file.startswith('<') else inside}:{line} in {function}"


def shortened(text: str, limit: int) -> str:
    """``text``, its middle left out if it is longer than ``limit`` characters.

    >>> shortened("abcdefghij", 4)
    'ab … 6 characters left out … ij'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"


def first_line(text: str) -> str:
    """The first line of ``text``, as it can stand alone; empty if there is none.

    >>> first_line("2 of 3 steps failed:\\n  raw/poems@dev: no rhyme")
    '2 of 3 steps failed'
    """
    return text.strip().partition("\n")[0].rstrip(": ")


def _message(exception: BaseException) -> str:
    # Text of foreign classes is foreign code: whatever it does, the failure must still be told.
    try:
        text = str(exception)
    except BaseException as fault:  # noqa: BLE001
        return f"(its message can't be shown: {type(fault).__name__})"
    # JSON has no lone surrogates, which file names can have.
    return text.encode("utf-8", "backslashreplace").decode()


def _traceback(exception: BaseException) -> str:
    try:
        told = traceback.TracebackException.from_exception(exception)
        _leave_out_the_way_to_the_step(told)
        text = "".join(told.format())
    except BaseException as fault:  # noqa: BLE001  # as above; also a chain too deep to be formatted
        frames = [shown_frame(*frame) for frame in _frames(exception)]
        reason = f"(its traceback can't be shown in full: {type(fault).__name__})"
        text = "\n".join([*frames, f"{type(exception).__name__}: {_message(exception)}", reason])
    return text.encode("utf-8", "backslashreplace").decode()


def _leave_out_the_way_to_the_step(told: traceback.TracebackException) -> None:
    """Let each traceback begin at what the step called: that Marin called the step is no news."""
    seen = set[int]()
    waiting = [told]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        leading = 0
        while leading < len(each.stack) and each.stack[leading].filename.startswith(_ON_THE_WAY):
            leading += 1
        if leading < len(each.stack):  # else it came up on the way
            del each.stack[:leading]
        waiting += [inner for inner in (each.__cause__, each.__context__, *(each.exceptions or ())) if inner]


def _first_user_frame(exception: BaseException) -> str:
    """The innermost frame of the user's code, in the exception or in what it came from; else the innermost of all.

    Empty for an error of ours that came up in our own code: it says by itself what is wrong, and where.
    """
    innermost = ""
    for each in _chain(exception):
        for frame in reversed(list(_frames(each))):
            if is_user_code(frame[0]) and (frame[0], frame[2]) != _GENERATED:
                return shown_frame(*frame)
            innermost = innermost or shown_frame(*frame)
    return "" if isinstance(exception, MarinError) else innermost


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """The exception, those grouped in it, its causes; each once, and not without end."""
    seen = set[int]()
    waiting = [exception]
    while waiting and len(seen) < _MAX_CHAIN:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        hidden = None if each.__suppress_context__ else each.__context__
        waiting += [cause for cause in (each.__cause__, hidden) if cause is not None]


def _frames(exception: BaseException) -> Iterator[tuple[str, int, str]]:
    step = exception.__traceback__
    while step is not None:
        yield step.tb_frame.f_code.co_filename, step.tb_lineno or 0, step.tb_frame.f_code.co_name
        step = step.tb_next
