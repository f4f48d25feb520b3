import errno
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from marin.errors import CheckpointError, NonFiniteLossError, StorageFullError
from marin.training import arrays
from marin.training.rolling import RollingCheckpoints

RECIPE = {"lr": 0.1, "betas": (0.9, 0.95)}


def state(value):
    return {"params.w": np.full((2, 3), value, np.float32), "optimizer.count": np.array(7, np.int32)}


def test_what_is_saved_comes_back_with_the_same_bits(tmp_path):
    saved = state(0.1)
    saved["params.w"][0, 0] = np.nextafter(np.float32(0.1), np.float32(1))
    RollingCheckpoints(str(tmp_path), RECIPE).save(12, saved)
    step, back = RollingCheckpoints(str(tmp_path), RECIPE).newest()
    assert step == 12
    assert {name: (a.dtype, a.tobytes()) for name, a in back.items()} == {
        name: (a.dtype, a.tobytes()) for name, a in saved.items()
    }


def test_the_newest_two_are_kept(tmp_path):
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    for step in (1, 2, 10):
        checkpoints.save(step, state(step))
    assert sorted(os.listdir(tmp_path)) == ["step-000000002", "step-000000010"]
    assert checkpoints.newest()[0] == 10


def remove_marker(folder: Path):
    (folder / "complete.json").unlink()


def tear_marker(folder: Path):
    (folder / "complete.json").write_bytes(b'{"step": 2, "by')


def tear_state(folder: Path):
    file = folder / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def flip_a_bit(folder: Path):
    file = folder / "state.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [remove_marker, tear_marker, tear_state, flip_a_bit])
def test_a_damaged_one_is_skipped_by_name_and_the_one_before_is_used(damage, tmp_path, caplog):
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2))
    damage(tmp_path / "step-000000002")
    with caplog.at_level(logging.WARNING):
        step, back = checkpoints.newest()
    assert step == 1
    assert back["params.w"][0, 0] == 1
    assert "skipped checkpoint" in caplog.text
    assert "step-000000002" in caplog.text
    checkpoints.save(2, state(2))
    assert checkpoints.newest()[0] == 2


def test_what_two_kills_left_half_written_costs_no_good_one(tmp_path):
    RollingCheckpoints(str(tmp_path), RECIPE).save(150, state(1))
    for step in (180, 200):
        (tmp_path / f"step-{step:09}").mkdir()
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    checkpoints.newest()
    checkpoints.save(160, state(2))
    assert sorted(os.listdir(tmp_path)) == ["step-000000150", "step-000000160"]
    assert RollingCheckpoints(str(tmp_path), RECIPE).newest()[0] == 160


def test_a_skipped_one_older_than_the_next_is_not_kept_in_place_of_a_good_one(tmp_path):
    RollingCheckpoints(str(tmp_path), RECIPE).save(150, state(1))
    (tmp_path / "step-000000180").mkdir()
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    checkpoints.newest()
    checkpoints.save(200, state(2))
    assert sorted(os.listdir(tmp_path)) == ["step-000000150", "step-000000200"]


def test_the_one_that_was_gone_on_with_is_not_written_anew(tmp_path, monkeypatch):
    """A signal right after resuming saves the same step: a kill or a full disk then must not cost it."""
    RollingCheckpoints(str(tmp_path), RECIPE).save(100, state(1))
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    step, back = checkpoints.newest()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(arrays, "save_file", full)
    assert checkpoints.save(step, back) == str(tmp_path / "step-000000100")
    assert RollingCheckpoints(str(tmp_path), RECIPE).newest()[0] == 100


def test_if_none_is_good_it_says_that_all_begins_again_and_calls_none_good(tmp_path, caplog):
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    checkpoints.save(1, state(1))
    tear_state(tmp_path / "step-000000001")
    again = RollingCheckpoints(str(tmp_path), RECIPE)
    with caplog.at_level(logging.WARNING):
        assert again.newest() is None
    assert "begins at step 0 again" in caplog.text
    assert again.describe_newest() == "none yet"


def test_none_at_all_is_no_error(tmp_path):
    assert RollingCheckpoints(str(tmp_path / "new"), RECIPE).newest() is None


def test_another_recipe_is_refused_with_the_keys(tmp_path):
    RollingCheckpoints(str(tmp_path), RECIPE).save(1, state(1))
    RollingCheckpoints(str(tmp_path), {"betas": [0.9, 0.95], "lr": 0.1}).newest()
    with pytest.raises(CheckpointError, match=r"other settings: betas\[1\]: 0.95 → 0.99; lr: 0.1 → None"):
        RollingCheckpoints(str(tmp_path), {"betas": (0.9, 0.99)}).newest()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_never_saved(bad, tmp_path):
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    checkpoints.save(1, state(1))
    with pytest.raises(NonFiniteLossError, match=r"params.w holds infinite or NaN numbers"):
        checkpoints.save(2, state(bad))
    assert os.listdir(tmp_path) == ["step-000000001"]


def test_a_full_disk_keeps_the_old_one_and_leaves_nothing_half_done(tmp_path, monkeypatch):
    checkpoints = RollingCheckpoints(str(tmp_path), RECIPE)
    checkpoints.save(1, state(1))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(arrays, "save_file", full)
    with pytest.raises(StorageFullError, match=r"no space left to write .*step-000000002"):
        checkpoints.save(2, state(2))
    assert os.listdir(tmp_path) == ["step-000000001"]


def test_an_array_of_another_model_is_named(tmp_path):
    like = {"params": {"w": np.zeros((2, 4), np.float32)}}
    with pytest.raises(
        CheckpointError, match=r"here: params.w is float32\[2, 3\], but the model wants float32\[2, 4\]"
    ):
        arrays.tree_of(state(1), like, origin="here")
    with pytest.raises(CheckpointError, match=r"here lacks the array params.v"):
        arrays.tree_of(state(1), {"params": {"v": np.zeros(1)}}, origin="here")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660)])
def test_the_umask_says_who_may_read_a_checkpoint(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        arrays.save_arrays(str(tmp_path / "params.safetensors"), {"a": np.zeros(2)})
    finally:
        os.umask(before)
    assert (tmp_path / "params.safetensors").stat().st_mode & 0o777 == mode
