"""Saving beside the steps. ``Held`` stands between the writer and the disk and lets a save go on when told to."""

import functools
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marin.errors import NonFiniteLossError, StorageFullError
from marin.training.checkpoint_files import read_checkpoint
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.checkpoint_writer import CheckpointWriter
from marin.training.rolling import RollingCheckpoints
from tests.training.test_tensor_file import files_end_at

ROOT = Path(__file__).parents[2]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Held:
    """Checkpoints whose ``save`` begins, and ends only after ``go``."""

    def __init__(self, inner, on_begin=lambda: None):
        self._inner, self._on_begin = inner, on_begin
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    @property
    def newest_step(self):
        return self._inner.newest_step

    def has_permanent(self, step):
        return self._inner.has_permanent(step)

    def describe_newest(self):
        return self._inner.describe_newest()

    def save(self, step, arrays, **how):
        self.begun.release()
        self._on_begin()
        self.go.acquire()
        return self._inner.save(step, arrays, **how)


def checkpoints_in(output, **policy):
    return RollingCheckpoints(str(output), {}, CheckpointPolicy(**policy))


def writer_to(checkpoints, clock=None, **policy):
    return CheckpointWriter(checkpoints, CheckpointPolicy(**policy), clock=clock or Clock())


def state(value):
    return {"w": jnp.full((3,), value, jnp.float32)}


@functools.partial(jax.jit, donate_argnums=0)
def step_after(state):
    return jax.tree.map(lambda array: array + 1, state)


def saved_value(output):
    step, arrays = checkpoints_in(output).newest()
    return step, arrays["w"][0]


def steps_in(folder):
    return [int(name[5:]) for name in sorted(os.listdir(folder))]


def test_the_training_goes_on_while_a_state_is_written_and_that_state_is_the_one_that_was_given(tmp_path):
    held = Held(checkpoints_in(tmp_path))
    writer = writer_to(held)
    current = state(1)
    writer.save(1, current)
    held.begun.acquire()
    for _ in range(3):
        current = step_after(current)
    assert float(current["w"][0]) == 4
    held.go.release()
    writer.finish()
    assert saved_value(tmp_path) == (1, 1)


def test_each_of_several_saves_holds_its_own_state(tmp_path):
    writer = writer_to(checkpoints_in(tmp_path, every=1), every=1)
    current = state(0)
    for step in (1, 2, 3):
        current = step_after(current)
        writer.save(step, current)
    writer.finish()
    saved = [read_checkpoint(str(tmp_path / "checkpoints" / f"step-{step:09}"))["w"][0] for step in (1, 2, 3)]
    assert saved == [1, 2, 3]


def test_it_is_due_when_the_time_is_over_and_never_at_step_0_or_where_one_lies_or_at_the_last_step(tmp_path):
    clock, checkpoints = Clock(), checkpoints_in(tmp_path, seconds=60)
    writer = writer_to(checkpoints, clock, seconds=60)
    clock.now = 59
    assert not writer.due(3, last=False)
    clock.now = 60
    assert writer.due(3, last=False)
    assert not writer.due(0, last=False)
    assert not writer.due(3, last=True)
    writer.save(3, state(3))
    writer.finish()
    clock.now = 119
    assert not writer.due(4, last=False)
    clock.now = 120
    assert writer.due(4, last=False)
    assert not writer.due(3, last=False)


def test_a_rolling_one_that_falls_due_while_another_is_written_is_made_after_it(tmp_path):
    clock, held = Clock(), Held(checkpoints_in(tmp_path))
    writer = writer_to(held, clock, seconds=60)
    writer.save(1, state(1))
    clock.now = 100
    assert not writer.due(2, last=False)
    held.go.release()
    writer.finish()
    assert writer.due(3, last=False)


def test_a_permanent_one_belongs_to_its_step_and_waits_for_the_one_under_way(tmp_path):
    held = Held(checkpoints_in(tmp_path, every=10))
    writer = writer_to(held, every=10)
    writer.save(9, state(9))
    held.begun.acquire()
    assert writer.due(10, last=False)
    waiting = threading.Thread(target=writer.save, args=(10, state(10)))
    waiting.start()
    assert not held.begun.acquire(timeout=0.2)  # two at once would be two states in memory
    held.go.release(2)
    waiting.join()
    writer.finish()
    assert steps_in(tmp_path / "resume") == [9]
    assert steps_in(tmp_path / "checkpoints") == [10]
    assert not writer.due(10, last=False)


def test_a_permanent_one_under_way_is_not_due_again_and_the_last_step_too_is_kept_for_good(tmp_path):
    held = Held(checkpoints_in(tmp_path, every=10))
    writer = writer_to(held, every=10)
    assert writer.due(20, last=True)
    writer.save(20, state(20))
    assert not writer.due(20, last=True)
    held.go.release()
    writer.finish()
    assert steps_in(tmp_path / "checkpoints") == [20]


def test_stopped_where_a_permanent_one_is_due_it_is_made_in_place_of_a_rolling_one(tmp_path):
    writer = writer_to(checkpoints_in(tmp_path, every=10), every=10)
    assert writer.save_now(10, state(10)) == str(tmp_path / "checkpoints" / "step-000000010")
    assert not (tmp_path / "resume").exists()


def test_resumed_from_a_rolling_one_of_that_step_the_permanent_one_is_still_made(tmp_path):
    checkpoints_in(tmp_path).save(10, {"w": np.ones(3)})
    checkpoints = checkpoints_in(tmp_path, every=10)
    checkpoints.newest()
    writer = writer_to(checkpoints, every=10)
    assert writer.due(10, last=False)
    writer.save(10, state(10))
    writer.finish()
    assert steps_in(tmp_path / "checkpoints") == [10]


def call_due(writer):
    writer.due(3, last=False)


def call_save(writer):
    writer.save(3, state(3))


def call_finish(writer):
    writer.finish()


@pytest.mark.parametrize("call", [call_due, call_save, call_finish])
def test_what_failed_in_the_background_is_raised_at_the_next_call_as_if_it_had_been_made_there(call, tmp_path):
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, {"w": np.ones(3)})
    held = Held(checkpoints)
    writer = writer_to(held)
    with files_end_at(10):
        writer.save(2, state(2))
        held.go.release()
        under_way = writer._under_way
        under_way.exception()
    with pytest.raises(
        StorageFullError, match=r"step 2 was not saved: .*no room to write.*checkpoint: .*step-000000001"
    ):
        call(writer)
    writer.finish()  # it is told once
    held.go.release()
    writer.save(4, state(4))
    writer.finish()
    assert saved_value(tmp_path) == (4, 4)


def test_a_state_that_is_not_finite_is_told_and_not_saved(tmp_path):
    writer = writer_to(checkpoints_in(tmp_path))
    writer.save(2, state(np.nan))
    with pytest.raises(NonFiniteLossError, match=r"the state after step 2 was not saved: w holds infinite or NaN"):
        writer.finish()
    assert checkpoints_in(tmp_path).newest() is None


def test_told_to_stop_it_saves_even_if_the_save_before_failed(tmp_path, caplog):
    writer = writer_to(checkpoints_in(tmp_path))
    with files_end_at(10):
        writer.save(2, state(2))
        writer._under_way.exception()
    with caplog.at_level(logging.WARNING):
        assert writer.save_now(3, state(3)) == str(tmp_path / "resume" / "step-000000003")
    assert "step 2 was not saved" in caplog.text
    assert saved_value(tmp_path) == (3, 3)


def test_told_to_stop_where_a_save_is_under_way_it_waits_for_that_one(tmp_path):
    held = Held(checkpoints_in(tmp_path), on_begin=lambda: held.go.release())
    writer = writer_to(held)
    writer.save(3, state(3))
    assert writer.save_now(3, state(5)) == str(tmp_path / "resume" / "step-000000003")
    assert saved_value(tmp_path) == (3, 3)


def test_an_error_of_the_training_waits_for_the_save_under_way_and_stays_the_error_that_is_told(tmp_path, caplog):
    writer = writer_to(checkpoints_in(tmp_path))

    def fail_after_saving(step, value):
        with writer:
            writer.save(step, state(value))
            raise ValueError("of the training")

    with pytest.raises(ValueError, match="of the training"):
        fail_after_saving(3, 3)
    assert saved_value(tmp_path) == (3, 3)
    with pytest.raises(ValueError, match="of the training"), caplog.at_level(logging.WARNING):
        fail_after_saving(4, np.inf)
    assert "step 4 was not saved" in caplog.text


def test_ctrl_c_ends_the_waiting_for_a_disk_that_hangs(tmp_path):
    def interrupt():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def save_and_wait():
        with writer_to(held) as writer:
            writer.save(3, state(3))
            writer.finish()

    held = Held(checkpoints_in(tmp_path), on_begin=interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_and_wait()
    held.go.release()


HANGING = """
import sys
from tests.training.test_checkpoint_writer import Held, checkpoints_in, state, writer_to
held = Held(checkpoints_in(sys.argv[1]))
writer = writer_to(held)
writer.save(3, state(3))
held.begun.acquire()
print("ends", flush=True)
"""


def test_a_process_ends_also_while_a_save_hangs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_a_save_that_takes_long_is_told_once(tmp_path, caplog):
    clock, held = Clock(), Held(checkpoints_in(tmp_path))
    writer = writer_to(held, clock, seconds=300)
    writer.save(7, state(7))
    with caplog.at_level(logging.WARNING):
        for clock.now in (299, 300, 301):
            assert not writer.due(8, last=False)
    assert caplog.text.count("step 7 is still being written after 300 s") == 1
    held.go.release()
    writer.finish()


def test_a_training_that_had_to_wait_for_the_save_before_is_told_why(tmp_path, caplog):
    seconds = itertools.count(step=5)
    writer = writer_to(checkpoints_in(tmp_path, every=1), lambda: next(seconds), every=1)
    with caplog.at_level(logging.WARNING):
        writer.save(1, state(1))
        assert not caplog.text
        writer.save(2, state(2))
        writer.finish()
    assert "step 2 waited 5.0 s until the save before was done" in caplog.text


def test_what_must_be_durable_first_is_made_so_before_the_marker(tmp_path):
    seen = []

    def look():
        [folder] = (tmp_path / "resume").iterdir()
        seen.append((folder.suffix, (folder / "complete.json").exists(), threading.current_thread().daemon))

    checkpoints = checkpoints_in(tmp_path)
    CheckpointWriter(checkpoints, CheckpointPolicy(), before_marking=look).save_now(3, state(3))
    assert seen == [(".unfinished", False, True)]


def test_the_tree_that_is_saved_can_be_another_view_of_the_state(tmp_path):
    def unstacked(tree):
        return {"layers": [{"w": row} for row in tree["layers"]["w"]]}

    writer = CheckpointWriter(checkpoints_in(tmp_path), CheckpointPolicy(), canonical=unstacked)
    writer.save_now(3, {"layers": {"w": jnp.arange(6.0).reshape(2, 3)}})
    _, arrays = checkpoints_in(tmp_path).newest()
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "layers.0.w": [0, 1, 2],
        "layers.1.w": [3, 4, 5],
    }
