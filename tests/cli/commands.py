"""Runs the command as its users do: in a process of its own, with a script of theirs, on pipes or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from tests.executors.processes import PATIENCE

MARIN = [sys.executable, "-m", "marin.cli.main"]
STEPS = """
import time
from dataclasses import dataclass
from pathlib import Path
from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep
from marin.execution.progress import report
from marin.execution.remote_function import remote

@dataclass(frozen=True)
class Poems(Artifact):
    lines: int

def write(config):
    for line in range(config["lines"]):
        report(line + 1, config["lines"], "lines", note=f"loss {1 / (line + 1):.2f}")
        time.sleep(config.get("pause", 0))
    Path(config["output_path"], "poems.txt").write_text("vers\\n" * config["lines"])
    return Poems(lines=config["lines"])

def fail(config):
    raise ValueError("no verse today")

def poems(name="raw/poems", *deps, run=write, lines=3, pause=0, **more):
    def build_config(ctx):
        paths = [ctx.artifact_path(dep) for dep in deps]
        return {"output_path": ctx.output_path, "lines": lines, "pause": pause, "inputs": paths}
    return ArtifactStep(name=name, artifact_type=Poems, run=run, deps=deps, build_config=build_config, **more)
"""
"""A prelude for scripts: steps that write files."""


def script(folder: Path, text: str, name: str = "pipeline.py") -> Path:
    """A script of a user: the prelude, then ``text``."""
    path = folder / name
    path.write_text(STEPS + text)
    return path


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "COLUMNS", "LINES"))}
    return {**kept, "MARIN_DURABLE": "0", "PYTHONUNBUFFERED": "", **more}


def marin(folder: Path, *words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs ``marin`` in ``folder`` on pipes."""
    return python(folder, *MARIN[1:], *words, **environ)


def python(folder: Path, *words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )


def start(folder: Path, *words: str | Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MARIN, *map(str, words)],
        cwd=folder,
        env=environment(**environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def until(true: Callable[[], bool], what: str) -> None:
    """Waits until something is so; fails after a while."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


class Terminal:
    """``marin`` on a terminal of so many columns. ``stdout``: a file instead of the terminal."""

    def __init__(self, folder: Path, *words: str | Path, columns: int = 80, stdout: Path | None = None, **environ: str):
        self.written = b""
        self.screen, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(stdout.open("wb")) if stdout is not None else inner
            self.process = subprocess.Popen(
                [*MARIN, *map(str, words)],
                cwd=folder,
                env=environment(**{"TERM": "xterm-256color", **environ}),
                stdin=inner,
                stdout=output,
                stderr=inner,
                start_new_session=True,
            )
        os.close(inner)

    def read_until(self, text: str) -> None:
        until(lambda: self._read() or text.encode() in self.written, f"the terminal shows {text!r}: {self.written!r}")

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """The exit code and all that was written."""
        deadline = time.monotonic() + PATIENCE
        while not self._read():
            if time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"the command does not end; it wrote {self.written!r}")
        os.close(self.screen)
        return self.process.wait(), self.written.decode()

    def _read(self) -> bool:
        """Takes in what there is. True at the end."""
        if not select.select([self.screen], [], [], 0.05)[0]:
            return False
        try:
            part = os.read(self.screen, 1 << 16)
        except OSError:  # how Linux says that nobody has the other end any more
            return True
        self.written += part
        return not part
