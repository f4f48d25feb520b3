"""All trackers of a training together."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from marin.errors import ConfigurationError
from marin.execution.redaction import redact_values, secret_values
from marin.training.trackers.background import BackgroundTracker
from marin.training.trackers.configs import TensorboardConfig, WandbConfig
from marin.training.trackers.tracker import TrackedRun, Tracker, TrackerConfig

CLOSE_SECONDS = 30.0
"""How long the end of a training waits for its trackers, all of them together."""

INTERRUPTED_CLOSE_SECONDS = 5.0
"""The same after a fault or a signal: whoever stops a machine gives little time."""

_PACKAGES = {TensorboardConfig.tracker: ("tensorboardX", "tensorboard"), WandbConfig.tracker: ("wandb", "wandb")}
"""What our own need, and the extra that brings it: looked for, not imported, as wandb takes a second."""


def check_trackers(trackers: Sequence[TrackerConfig]) -> None:
    """Raise ``ConfigurationError`` for a tracker that is not installed here or can't be imported."""
    for config in trackers:
        if (known := _PACKAGES.get(config.tracker)) is None:
            _opener(config)
            continue
        package, extra = known
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(
                f"{type(config).__name__} needs {package}, which is not installed here: "
                f"pip install 'marin[{extra}]', or leave the tracker out"
            )


class Trackers:
    """The trackers of one training, each in a thread of its own; use it as a context, which closes them."""

    def __init__(self, trackers: Sequence[TrackerConfig], run: TrackedRun) -> None:
        """Starts the threads, and waits for nothing. Ask ``check_trackers`` first."""
        run = dataclasses.replace(run, config=redact_values(run.config, secret_values(os.environ)))
        self._trackers = [
            BackgroundTracker(type(config).__name__, functools.partial(_open, config, run)) for config in trackers
        ]

    def log(self, row: Mapping[str, Any]) -> None:
        """Give every tracker ``row``, which must not be changed any more. Never waits, never raises."""
        for tracker in self._trackers:
            tracker.log(row)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Let them deliver what is left, for so long at most."""
        deadline = time.monotonic() + seconds
        for tracker in self._trackers:
            tracker.begin_close()
        for tracker in self._trackers:
            tracker.end_close(deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(CLOSE_SECONDS if kind is None else INTERRUPTED_CLOSE_SECONDS)


def _open(config: TrackerConfig, run: TrackedRun) -> Tracker:
    return _opener(config)(config, run)


def _opener(config: TrackerConfig) -> Callable[[TrackerConfig, TrackedRun], Tracker]:
    module, _, name = config.tracker.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except Exception as fault:  # an import may raise anything
        raise ConfigurationError(
            f"{type(config).__name__}: its tracker {config.tracker!r} can't be imported "
            f"({type(fault).__name__}: {fault}): name a function as 'module:function'"
        ) from fault
    if not callable(found):
        raise ConfigurationError(f"{type(config).__name__}: {config.tracker!r} is no function: name one that opens it")
    return cast("Callable[[TrackerConfig, TrackedRun], Tracker]", found)
