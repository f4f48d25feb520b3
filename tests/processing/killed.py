"""For children that are to be killed at a certain moment: they do it themselves, as nobody else would be in time."""

from __future__ import annotations

import fnmatch
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kill_at(pattern: str) -> None:
    """Kill this process when a file that matches is there: a scratch file before it gets its name, others after."""
    real = os.replace

    def replace(source: str, target: str, **more: Any) -> None:
        if fnmatch.fnmatch(source, pattern):
            os.kill(os.getpid(), signal.SIGKILL)
        real(source, target, **more)
        if fnmatch.fnmatch(target, pattern):
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace  # type: ignore[assignment]


def killing(folder: str, pattern: str, count: int) -> Callable[[object], None]:
    """A sink of progress that kills this process once so many files are there."""

    def look(_: object) -> None:
        if len(list(Path(folder).glob(pattern))) >= count:
            os.kill(os.getpid(), signal.SIGKILL)

    return look
