"""What a tracker is: a config that describes it, and the object that takes the rows of metrics."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from marin.errors import ConfigurationError

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class TrackerConfig(Protocol):
    """A frozen dataclass that says where metrics shall go. Never identity: a training with and without it is one.

    One of your own, in ``my_project/trackers.py``::

        @dataclass(frozen=True, kw_only=True)
        class MailConfig:
            tracker: ClassVar[str] = "my_project.trackers:open_mail"
            address: str

        class Mail:
            def __init__(self, address: str) -> None:
                self.address = address

            def log(self, row: Mapping[str, Any]) -> None:
                if "validation_loss" in row:
                    send(self.address, f"step {row['step']}: {row['validation_loss']:.3f}")

            def close(self) -> None:
                pass

        def open_mail(config: MailConfig, run: TrackedRun) -> Mail:
            return Mail(config.address)

    Secrets don't belong into its fields, which are sent to other processes: read them from the environment.
    """

    tracker: ClassVar[str]
    """``"module:function"``. The function is called with the config and a ``TrackedRun``, and returns a ``Tracker``."""


class Tracker(Protocol):
    """Takes rows. Its methods run in one thread of its own, and may be slow, hang or raise: the training goes on."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Take one row of ``metrics.jsonl``: ``step``, and what was measured there."""
        ...

    def close(self) -> None:
        """Deliver what is left. Called once, unless the tracker hangs."""
        ...


@runtime_checkable
class Abandonable(Protocol):
    """A tracker that can be given up from another thread, for one that would keep the process from ending."""

    def abandon(self) -> None:
        """End what would go on after the training. The training waits for it, so it must not."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker may want to know of the training. ``config`` is plain data, without secrets."""

    name: str
    output_path: str
    """The folder of ``metrics.jsonl``. What a tracker puts there stays with the checkpoint: files that are whole after
    ``close``, and no links that lead out of the folder."""
    resumed_step: int
    """How many steps were done when this process began; rows after that step, if there were any, come again."""
    num_steps: int
    config: Mapping[str, Any]


def checked_trackers(where: str, trackers: Iterable[TrackerConfig]) -> tuple[TrackerConfig, ...]:
    """``trackers`` as a tuple. Raises ``ConfigurationError``, which names ``where``, for what describes no tracker."""
    if not isinstance(trackers, Iterable) or isinstance(trackers, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"{where}: trackers={trackers!r} is no list: write trackers=[WandbConfig(project='...')]"
        )
    given = tuple(trackers)
    for config in given:
        function = getattr(config, "tracker", None)
        described = dataclasses.is_dataclass(config) and not isinstance(config, type)
        if not (described and isinstance(function, str) and _FUNCTION.fullmatch(function)):
            raise ConfigurationError(
                f"{where}: {config!r} in trackers describes no tracker: give TensorboardConfig(), "
                "WandbConfig(project=...) or a dataclass of yours with tracker = 'module:function'"
            )
    return given
