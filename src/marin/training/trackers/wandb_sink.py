"""Rows of metrics as a run of Weights & Biases."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import wandb  # pyright: ignore[reportMissingImports]  # an extra

from marin.processing.durable import write_whole
from marin.training.trackers.configs import WandbConfig
from marin.training.trackers.tracker import TrackedRun

ID_FILE = "wandb.json"
"""Beside the metrics: which run this training is. A resumed training goes on in it."""

_SERVICE = "wandb-core"


class RunId(msgspec.Struct, frozen=True):
    """The content of ``ID_FILE``."""

    id: str
    project: str
    entity: str | None


def open_tracker(config: WandbConfig, run: TrackedRun) -> WandbTracker:
    """A tracker that begins its run with the first row."""
    return WandbTracker(config, run)


class WandbTracker:
    """Gives rows to wandb, whose own process sends them.

    The run is that of an earlier process of this training, if there was one. It begins with the first row and not when
    the tracker is made: beginning may hang without network, and what hangs must be known to be given up.
    """

    def __init__(self, config: WandbConfig, run: TrackedRun) -> None:
        self._begin = functools.cache(functools.partial(_begun, config, run))
        self._failure: Exception | None = None

    def log(self, row: Mapping[str, Any]) -> None:
        if self._failure is not None:  # a wrong key stays wrong, and each try would take seconds
            raise self._failure
        try:
            run = self._begin()
        except Exception as fault:
            self._failure = fault
            raise
        run.log(dict(row))

    def close(self) -> None:
        if self._failure is None:
            self._begin().finish()

    def abandon(self) -> None:
        """End wandb's process: it would keep ours from ending until all is sent, without network for ever."""
        end_service()


def _begun(config: WandbConfig, run: TrackedRun) -> Any:
    if config.directory is not None:
        os.makedirs(config.directory, exist_ok=True)
    settings = wandb.Settings(
        console="off",  # what the step prints is in its log
        disable_code=True,
        disable_git=True,
        save_code=False,
        quiet=True,
    )
    begun = wandb.init(
        id=_run_id(config, run.output_path),
        resume="allow",
        project=config.project,
        entity=config.entity,
        group=config.group,
        name=config.run_name or run.name,
        tags=list(config.tags),
        dir=config.directory,
        config=dict(run.config),
        settings=settings,
    )
    # By our own step, not by wandb's, which can't go back: a resumed training repeats some, with the same numbers.
    begun.define_metric("step", hidden=True)
    begun.define_metric("*", step_metric="step")
    return begun


def end_service() -> None:
    """Kill the wandb processes that are children of this one."""
    for process in _children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _children() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                command = Path("/proc", child, "cmdline").read_bytes().split(b"\0")[0]
                if os.path.basename(os.fsdecode(command)) == _SERVICE:
                    yield int(child)


def _run_id(config: WandbConfig, folder: str) -> str:
    file = os.path.join(folder, ID_FILE)
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        known = msgspec.json.decode(Path(file).read_bytes(), type=RunId)
        if (known.project, known.entity) == (config.project, config.entity):
            return known.id
    new = RunId(uuid.uuid4().hex[:16], config.project, config.entity)
    write_whole(file, msgspec.json.encode(new))
    return new.id
