"""Rows of metrics as the event files that TensorBoard reads."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any

from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]  # an extra

from marin.training.trackers.configs import TensorboardConfig
from marin.training.trackers.tracker import TrackedRun


def open_tracker(config: TensorboardConfig, run: TrackedRun) -> TensorboardTracker:
    """A tracker that goes on where ``run`` was resumed: TensorBoard hides what an earlier process wrote after that."""
    return TensorboardTracker(
        config.directory or os.path.join(run.output_path, "tensorboard"), resumed_step=run.resumed_step
    )


class TensorboardTracker:
    """Writes one scalar for each number of a row."""

    def __init__(self, directory: str, *, resumed_step: int) -> None:
        self._writer = SummaryWriter(
            directory,
            purge_step=resumed_step + 1 if resumed_step else None,
            # Without it a process that begins within the same second overwrites the file.
            filename_suffix=f".{time.time_ns()}",
        )

    def log(self, row: Mapping[str, Any]) -> None:
        """Numbers that are not finite are left out: TensorBoard draws a curve without them better than with them."""
        now = time.time()
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, value, row["step"], walltime=now)

    def close(self) -> None:
        self._writer.close()
