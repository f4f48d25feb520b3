"""A whole command line that is timed, and how one run of it is measured."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.memory_watch import MemoryWatch

OUTPUT_NAME = "step.out"
"""How every program here calls the file that a step writes, whichever tool runs the step."""

OUTPUT_BYTES = 10

RESULT_MARK = "measured: "
"""Begins a line on which a program says numbers of its own, as JSON."""

_TAIL = 2_000


class BenchmarkError(Exception):
    """A command did not do what was to be timed, so that its time means nothing."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command line; ``{store}`` in it and in ``env`` stands for the folder that it works in, and a name such as
    ``{corpus}`` for a place that the ``Workplace`` knows.

    - ``label``: whose it is, such as ``marin``; ``size``: how much it does.
    - ``outputs``: how many step files of ten bytes the store must hold in the end.
    - ``watched``: look at the memory of all its processes, which makes it slower.
    - ``warmed_by``: run once, unmeasured, before all rounds; ``None``: the smallest command of the label is.
    - ``filled_by``: run once, untimed, on the store that then serves every round; the timed command must not change
      any output there. ``None``: every run has an empty store of its own.
    """

    label: str
    size: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    outputs: int | None = None
    warmed_by: Command | None = None
    filled_by: Command | None = None
    watched: bool = False
    timeout: float = 900.0

    @property
    def name(self) -> str:
        return f"{self.label} {self.size}"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One run: seconds by the clock, seconds of the processors, the largest memory, and what the program said.

    ``max_rss_mb`` is that of its largest process; ``peak_pss_mb`` of all its processes together, if it was watched.
    """

    seconds: float
    cpu_seconds: float
    max_rss_mb: float
    said: dict[str, float]
    peak_pss_mb: float | None = None


class Workplace:
    """A scratch folder for stores, output and bytecode; all stores are on the one disk it lies on.

    Stores stay until the whole folder goes: removing one between two commands would slow the second one down.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], places: Mapping[str, Path] | None = None) -> None:
        """``places``: what else a command may name in braces, such as ``{corpus}``."""
        self.folder = folder
        self._places = dict(places or {})
        folder.mkdir(parents=True, exist_ok=True)
        _spread(folder)
        # Every tool gets its bytecode cached, and nobody's settings of Python or Marin reach the children.
        kept = {key: value for key, value in environ.items() if not key.startswith(("PYTHON", "MARIN_"))}
        self.env = {**kept, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        self._kept: dict[str, Path] = {}
        self._made = 0

    def measure(self, command: Command) -> Sample:
        """Run ``command`` once. Raises ``BenchmarkError`` if it fails, hangs, or leaves the wrong outputs."""
        store = self._kept_store(command) if command.filled_by is not None else self._new_store()
        before = _outputs(store) if command.filled_by is not None else None
        sample = self._run(command, store)
        after = _outputs(store)
        if command.outputs is not None and len(after) != command.outputs:
            raise BenchmarkError(f"{command.name}: left {len(after)} outputs where {command.outputs} were due")
        if before is not None and after != before:
            raise BenchmarkError(f"{command.name}: was to find all done, and wrote outputs anew")
        return sample

    def forget_stores(self) -> None:
        """Use the stores that were kept between rounds no more."""
        self._kept.clear()

    def _new_store(self) -> Path:
        self._made += 1
        store = self.folder / f"store-{self._made}"
        store.mkdir(parents=True)
        return store

    def _kept_store(self, command: Command) -> Path:
        assert command.filled_by is not None
        key = f"{command.filled_by.argv}{sorted(command.filled_by.env.items())}"
        if key not in self._kept:
            store = self._new_store()
            self._run(command.filled_by, store)
            self._kept[key] = store
        return self._kept[key]

    def _run(self, command: Command, store: Path) -> Sample:
        argv = [self._located(part, store) for part in command.argv]
        env = {key: self._located(value, store) for key, value in command.env.items()}
        log = self.folder / "output.txt"
        with open(log, "wb") as output:
            begun = time.perf_counter()
            # A session of its own: what it has started is ended with it, should it hang or we be stopped.
            process = subprocess.Popen(
                argv,
                cwd=self.folder,
                env={**self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            with MemoryWatch(process.pid) if command.watched else contextlib.nullcontext() as watch:
                status, usage = _wait(process, command.timeout)
                seconds = time.perf_counter() - begun
        text = log.read_text(encoding="utf-8", errors="replace")
        if status != 0:
            how = f"ended with {status}" if status is not None else f"did not end within {command.timeout:g} s"
            raise BenchmarkError(f"{command.name}: {' '.join(argv)} {how}:\n{text[-_TAIL:]}")
        return Sample(
            seconds=seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            max_rss_mb=usage.ru_maxrss / 1024,
            said=_said(text),
            peak_pss_mb=watch.peak_mb if watch is not None else None,
        )

    def _located(self, text: str, store: Path) -> str:
        for name, place in {"store": store, **self._places}.items():
            text = text.replace(f"{{{name}}}", str(place))
        return text


def _spread(folder: Path) -> None:
    """Let ext4 put each store into another part of the disk, so that none is slowed down by what another has removed.

    Without a journal it looks at every inode near a new one that was freed in the last minutes, which takes longer than
    all that is measured here.
    """
    with contextlib.suppress(FileNotFoundError):
        subprocess.run(["chattr", "+T", folder], capture_output=True, check=False)  # other file systems refuse


def _wait(process: subprocess.Popen[bytes], timeout: float) -> tuple[int | None, Any]:
    """The exit status (``None``: killed at the deadline) and the resources that the process and its children used."""
    # The clock must stop when the process ends: a descriptor tells at once, where polling would tell late.
    descriptor = os.pidfd_open(process.pid)
    ended = False
    try:
        ended = _readable_within(descriptor, timeout)
    finally:
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)
        os.close(descriptor)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return (process.returncode if ended else None), usage


def _readable_within(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def _outputs(store: Path) -> dict[str, int]:
    """Where the step files of ``store`` lie and when each was written."""
    return dict(_walk(str(store)))


def _walk(folder: str) -> Iterator[tuple[str, int]]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        elif entry.name.endswith(OUTPUT_NAME) and (found := entry.stat()).st_size == OUTPUT_BYTES:
            yield entry.path, found.st_mtime_ns


def _said(text: str) -> dict[str, float]:
    said: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(RESULT_MARK):
            said |= json.loads(line.removeprefix(RESULT_MARK))
    return said
