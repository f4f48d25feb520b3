"""Waiting without waiting."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Waits:
    """Waits that take no time, and are written down."""

    seconds: list[float] = field(default_factory=list[float])

    def __call__(self, stop: threading.Event, seconds: float) -> None:
        self.seconds.append(seconds)
