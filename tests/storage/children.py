"""Other processes that tests start, talk to and kill."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Generator


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def running(code: str, *arguments: object) -> Generator[subprocess.Popen[str]]:
    """A child that has printed its first line; killed at the end."""
    with python(code, *arguments) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()
