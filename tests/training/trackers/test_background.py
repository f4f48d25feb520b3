"""Nothing that a tracker does reaches the training."""

import logging
import threading
import time

import pytest

from marin.training.trackers.background import BackgroundTracker
from tests.executors.processes import PATIENCE, eventually
from tests.training.trackers.sinks import Sink


def tracked(sink, rows, *, wait=PATIENCE, **changes):
    """What happens to ``sink`` when it gets ``rows``; gives how long closing took."""
    background = BackgroundTracker("Sink", sink.opened, delivery_seconds=0.01, **changes)
    for row in rows:
        background.log(row)
    begun = time.monotonic()
    background.end_close(begun + wait)
    return time.monotonic() - begun


def numbered(count):
    return [{"step": step, "loss": 1.0} for step in range(1, count + 1)]


def test_all_rows_arrive_in_order_and_it_is_closed(caplog):
    sink = Sink()
    tracked(sink, numbered(500))
    assert sink.rows == numbered(500)
    assert sink.closed
    assert not sink.abandoned
    assert not caplog.text


def test_rows_arrive_while_the_training_goes_on():
    sink = Sink()
    background = BackgroundTracker("Sink", sink.opened, delivery_seconds=0.01)
    background.log({"step": 1})
    assert eventually(lambda: sink.rows) == [{"step": 1}]
    background.end_close(time.monotonic() + PATIENCE)


@pytest.mark.parametrize("fault", [OSError("no network"), SystemExit(1), KeyboardInterrupt()])
@pytest.mark.parametrize("place", ["open", "log", "close"])
def test_a_tracker_that_raises_is_told_once_and_costs_its_rows(place, fault, caplog):
    sink = Sink(raises=place, fault=fault)
    with caplog.at_level(logging.WARNING):
        tracked(sink, numbered(5))
    told = {"open": "could not be opened", "log": "failed to take the row of step 1", "close": "failed to close"}
    assert caplog.text.count(told[place]) == 1
    assert type(fault).__name__ in caplog.text
    assert caplog.text.count("did not get 5 of 5 rows") == (place != "close")
    assert "all rows are in metrics.jsonl" in caplog.text


@pytest.mark.parametrize("place", ["open", "log", "close"])
def test_a_tracker_that_hangs_is_waited_for_so_long_and_no_longer(place, caplog):
    sink = Sink(hangs=place)
    with caplog.at_level(logging.WARNING):
        seconds = tracked(sink, numbered(5), wait=0.3)
    assert seconds > 0.2
    assert caplog.text.count("did not end in time and is left behind") == 1
    assert sink.abandoned == (place != "open")  # what was never opened has nothing to give up


def test_a_row_that_fails_does_not_stop_the_next_ones(caplog):
    class Flaky(Sink):
        def log(self, row):
            if row["step"] == 2:
                raise OSError("an outage")
            super().log(row)

    sink = Flaky()
    with caplog.at_level(logging.WARNING):
        tracked(sink, numbered(4))
    assert [row["step"] for row in sink.rows] == [1, 3, 4]
    assert "did not get 1 of 4 rows" in caplog.text


def test_a_tracker_that_changes_its_rows_changes_nobody_elses():
    class Greedy(Sink):
        def log(self, row):
            super().log({"step": row.pop("step"), **row})

    sink, rows = Greedy(), numbered(3)
    tracked(sink, rows)
    assert sink.rows == rows == numbered(3)


def test_rows_that_find_no_room_are_dropped_without_waiting_and_counted_once(caplog):
    sink, release = Sink(), threading.Event()
    background = BackgroundTracker("Sink", lambda: (release.wait(), sink)[1], queue_rows=10, delivery_seconds=0.01)
    with caplog.at_level(logging.WARNING):
        for row in numbered(1000):
            background.log(row)
        release.set()
        background.end_close(time.monotonic() + PATIENCE)
    assert sink.rows == numbered(10)
    assert caplog.text.count("can't keep up: 10 rows wait for it") == 1
    assert caplog.text.count("did not get 990 of 1,000 rows") == 1


def test_a_secret_in_its_fault_is_not_told(caplog, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567")
    sink = Sink(raises="open", fault=OSError("bad key 0123456789abcdef0123456789abcdef01234567"))
    with caplog.at_level(logging.WARNING):
        tracked(sink, [])
    assert "bad key" in caplog.text
    assert "0123456789abcdef" not in caplog.text
