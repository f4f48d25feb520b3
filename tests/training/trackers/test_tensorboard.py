"""What TensorBoard would read is what was logged."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorboardX.proto.event_pb2 import Event, SessionLog

from marin.training.trackers.configs import TensorboardConfig
from marin.training.trackers.running import Trackers
from tests.training.trackers.test_running import tracked_run


def events(folder: Path) -> Iterator[Any]:
    """Every record of its event files: length, checksum, data, checksum."""
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event()
            event.ParseFromString(data[12 : 12 + length])
            yield event
            data = data[16 + length :]


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    return [
        (event.step, value.tag, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
        if value.HasField("simple_value")
    ]


def test_every_number_of_a_row_is_a_scalar_at_its_step(tmp_path):
    with Trackers([TensorboardConfig()], tracked_run(tmp_path)) as trackers:
        trackers.log({"step": 1, "loss": 4.5, "tokens": 64})
        trackers.log({"step": 2, "loss": math.nan, "validation/poems/loss": 2.5})
    found = scalars(tmp_path / "tensorboard")
    assert found == [(1, "loss", 4.5), (1, "tokens", 64.0), (2, "validation/poems/loss", 2.5)]


def test_a_resumed_training_hides_what_came_after_the_step_it_goes_on_from(tmp_path):
    folder = tmp_path / "elsewhere"
    config = TensorboardConfig(directory=str(folder))
    for resumed_step, row in ((0, {"step": 3, "loss": 1.0}), (2, {"step": 3, "loss": 0.5})):
        with Trackers([config], tracked_run(tmp_path, resumed_step=resumed_step)) as trackers:
            trackers.log(row)
    restarts = [event.step for event in events(folder) if event.session_log.status == SessionLog.START]
    assert restarts == [3]
    assert [value for _, _, value in scalars(folder)] == [1.0, 0.5]
