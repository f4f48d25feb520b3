"""Scripts that the tests of faults run as processes of their own, and kill."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.executors.processes import MARK, PATIENCE, end_marked, eventually, marked

ROOT = Path(__file__).parents[2]

HEAD = """
import os, signal, subprocess, sys, time
from pathlib import Path
from marin.execution import ArtifactStep, RunOptions, remote
from marin.execution.runner import load, run

FOLDER = Path(sys.argv[1])
options = RunOptions(prefix=str(FOLDER / "store"), durable=False, lease_seconds=float(sys.argv[2]))

def mark(text):
    file = os.open(FOLDER / "marks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\\n".encode())
    os.close(file)
"""


class Script:
    """One script over one store, started as often as wanted. ``close`` leaves no process."""

    def __init__(self, folder: Path, head: str) -> None:
        self.folder = folder
        self.head = HEAD + head
        self.mark = uuid.uuid4().hex
        self.started: list[subprocess.Popen[bytes]] = []

    def start(
        self, body: str, *, lease: float = 3600.0, inside: Sequence[str] = (), **env: str
    ) -> subprocess.Popen[bytes]:
        """``inside``: a command that runs the one that follows it, such as ``unshare``."""
        # One name: the module of a step function is part of its recipe. A folder for each: it may be read late.
        place = self.folder / str(len(self.started)) / "pipeline.py"
        place.parent.mkdir()
        place.write_text(self.head + textwrap.dedent(body))
        with place.with_suffix(".out").open("w") as output:  # not a pipe: an orphan must not keep the test waiting
            process = subprocess.Popen(
                [*inside, sys.executable, place, self.folder, str(lease)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), MARK: self.mark, **env},
            )
        self.started.append(process)
        return process

    def ended(self, process: subprocess.Popen[bytes]) -> int:
        return process.wait(timeout=PATIENCE)

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / str(self.started.index(process)) / "pipeline.out").read_text()

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def marks(self) -> list[str]:
        try:
            return (self.folder / "marks").read_text().splitlines()
        except FileNotFoundError:
            return []

    def wait_for_no_process(self) -> None:
        eventually(lambda: not marked(self.mark))

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
        end_marked(self.mark)
