"""Folders of checkpoints: what is written, gone on with, skipped, refused and removed."""

import errno
import json
import logging
import os
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from marin.errors import (
    AddressOccupiedError,
    CheckpointError,
    NewerCheckpointError,
    NonFiniteLossError,
    StorageFullError,
    StoreError,
)
from marin.training import checkpoint_files, rolling
from marin.training.checkpoint_files import read_checkpoint
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.rolling import RollingCheckpoints
from tests.training.test_tensor_file import files_end_at

RECIPE = {"lr": 0.1, "betas": (0.9, 0.95)}
STATE_FILE = "state-00000-of-00001.safetensors"


def state(value):
    return {"params.w": np.full((2, 3), value, np.float32), "optimizer.count": np.array(7, np.int32)}


def checkpoints_in(output, recipe=RECIPE, **policy):
    return RollingCheckpoints(str(output), recipe, CheckpointPolicy(**policy))


def names(folder):
    return sorted(os.listdir(folder))


def first_value(saved):
    return saved[1]["params.w"][0, 0]


def test_what_is_saved_comes_back_with_the_same_bits(tmp_path):
    saved = state(0.1)
    saved["params.w"][0, 0] = np.nextafter(np.float32(0.1), np.float32(1))
    checkpoints_in(tmp_path).save(12, saved)
    step, back = checkpoints_in(tmp_path).newest()
    assert step == 12
    assert {name: (a.dtype, a.tobytes()) for name, a in back.items()} == {
        name: (a.dtype, a.tobytes()) for name, a in saved.items()
    }


def test_a_checkpoint_is_a_file_of_arrays_and_a_marker_that_lists_it(tmp_path):
    folder = Path(checkpoints_in(tmp_path).save(12, state(1)))
    assert folder == tmp_path / "resume" / "step-000000012"
    assert names(folder) == ["complete.json", STATE_FILE]
    content = (folder / STATE_FILE).read_bytes()
    assert json.loads((folder / "complete.json").read_bytes()) == {
        "format": 2,
        "step": 12,
        "files": [{"name": STATE_FILE, "bytes": len(content), "sha256": sha256(content).hexdigest()}],
        "recipe": {"lr": 0.1, "betas": [0.9, 0.95]},
    }


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_few_are_kept(keep, tmp_path):
    checkpoints = checkpoints_in(tmp_path, keep=keep)
    for step in (1, 2, 10, 11):
        checkpoints.save(step, state(step))
    kept = [f"step-{step:09}" for step in (1, 2, 10, 11)][-keep:]
    assert names(tmp_path / "resume") == kept
    assert checkpoints.newest()[0] == 11


def test_permanent_ones_stay_beside_the_rolling_ones(tmp_path):
    checkpoints = checkpoints_in(tmp_path, keep=1, every=10)
    for step in (5, 10, 15, 20, 25):
        checkpoints.save(step, state(step), permanent=step % 10 == 0)
    assert names(tmp_path / "resume") == ["step-000000025"]
    assert names(tmp_path / "checkpoints") == ["step-000000010", "step-000000020"]
    checkpoints.clear()
    assert names(tmp_path) == ["checkpoints"]
    assert read_checkpoint(str(tmp_path / "checkpoints" / "step-000000010"), "params.")["w"][0, 0] == 10


def test_of_the_permanent_ones_too_only_so_many_are_kept_if_so_wanted(tmp_path):
    checkpoints = checkpoints_in(tmp_path, every=10, keep_permanent=2)
    for step in (10, 20, 30):
        checkpoints.save(step, state(step), permanent=True)
    assert names(tmp_path / "checkpoints") == ["step-000000020", "step-000000030"]


def test_a_permanent_one_is_gone_on_with_if_it_is_the_newest(tmp_path):
    checkpoints = checkpoints_in(tmp_path, every=10)
    checkpoints.save(5, state(5))
    path = checkpoints.save(10, state(10), permanent=True)
    again = checkpoints_in(tmp_path, every=10)
    assert again.newest()[0] == 10
    assert again.has_permanent(10)
    assert not again.has_permanent(5)
    assert again.save(10, state(10)) == path
    assert names(tmp_path / "resume") == ["step-000000005"]


def test_a_step_that_was_saved_for_an_interruption_can_be_kept_for_good_as_well(tmp_path):
    checkpoints = checkpoints_in(tmp_path, every=10)
    checkpoints.save(10, state(10))
    checkpoints.save(10, state(10), permanent=True)
    assert names(tmp_path / "checkpoints") == ["step-000000010"]


def remove_marker(folder: Path):
    (folder / "complete.json").unlink()


def tear_marker(folder: Path):
    (folder / "complete.json").write_bytes(b'{"step": 2, "by')


def empty_marker(folder: Path):
    (folder / "complete.json").write_bytes(b"")


def fill_marker_with_something_else(folder: Path):
    (folder / "complete.json").write_bytes(b"[1, 2]")


def mark_as_of_another_step(folder: Path):
    marker = json.loads((folder / "complete.json").read_bytes())
    (folder / "complete.json").write_text(json.dumps(marker | {"step": 7}))


def list_a_file_from_elsewhere(folder: Path):
    marker = json.loads((folder / "complete.json").read_bytes())
    marker["files"][0]["name"] = f"../step-000000001/{STATE_FILE}"
    (folder / "complete.json").write_text(json.dumps(marker))


def list_no_file(folder: Path):
    marker = json.loads((folder / "complete.json").read_bytes())
    (folder / "complete.json").write_text(json.dumps(marker | {"files": []}))


def remove_state(folder: Path):
    (folder / STATE_FILE).unlink()


def tear_state(folder: Path):
    file = folder / STATE_FILE
    file.write_bytes(file.read_bytes()[:-1])


def flip_a_bit(folder: Path):
    file = folder / STATE_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


DAMAGES = [
    remove_marker,
    tear_marker,
    empty_marker,
    fill_marker_with_something_else,
    mark_as_of_another_step,
    list_a_file_from_elsewhere,
    list_no_file,
    remove_state,
    tear_state,
    flip_a_bit,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_skipped_by_name_and_the_one_before_is_used(damage, tmp_path, caplog):
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2))
    damage(tmp_path / "resume" / "step-000000002")
    with caplog.at_level(logging.WARNING):
        saved = checkpoints.newest()
    assert (saved[0], first_value(saved)) == (1, 1)
    assert "skipped checkpoint" in caplog.text
    assert "step-000000002" in caplog.text
    checkpoints.save(2, state(3))
    saved = checkpoints_in(tmp_path).newest()
    assert (saved[0], first_value(saved)) == (2, 3)
    assert names(tmp_path / "resume") == ["step-000000001", "step-000000002"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_if_none_is_whole_the_training_does_not_begin_anew_by_itself(damage, tmp_path):
    checkpoints = checkpoints_in(tmp_path, every=2)
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2), permanent=True)
    damage(tmp_path / "resume" / "step-000000001")
    tear_state(tmp_path / "checkpoints" / "step-000000002")
    again = checkpoints_in(tmp_path, every=2)
    with pytest.raises(CheckpointError) as caught:
        again.newest()
    message = str(caught.value)
    assert message.startswith("no whole checkpoint of this training is left (")
    assert "resume/step-000000001: it" in message
    assert "checkpoints/step-000000002: its state-00000-of-00001.safetensors is not what was written" in message
    assert f"or remove {tmp_path}/resume and {tmp_path}/checkpoints to begin at step 0" in message
    assert again.describe_newest() == "none yet"
    for folder in ("resume", "checkpoints"):
        shutil.rmtree(tmp_path / folder)
    assert checkpoints_in(tmp_path).newest() is None


def test_a_damaged_permanent_one_is_made_anew_when_its_step_comes_again(tmp_path):
    checkpoints = checkpoints_in(tmp_path, every=10)
    checkpoints.save(5, state(5))
    checkpoints.save(10, state(10), permanent=True)
    flip_a_bit(tmp_path / "checkpoints" / "step-000000010")
    again = checkpoints_in(tmp_path, every=10)
    assert again.newest()[0] == 5
    assert not again.has_permanent(10)
    again.save(10, state(11), permanent=True)
    assert first_value(checkpoints_in(tmp_path).newest()) == 11


def test_what_two_kills_of_an_older_version_left_half_written_costs_no_good_one(tmp_path):
    checkpoints_in(tmp_path).save(150, state(1))
    for step in (180, 200):
        (tmp_path / "resume" / f"step-{step:09}").mkdir()
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.newest()
    checkpoints.save(160, state(2))
    assert names(tmp_path / "resume") == ["step-000000150", "step-000000160"]
    assert checkpoints_in(tmp_path).newest()[0] == 160


def test_what_an_interrupted_save_left_is_removed_and_named(tmp_path, caplog):
    checkpoints_in(tmp_path, every=5).save(3, state(3))
    for left in ("resume/step-000000004.unfinished", "checkpoints/step-000000005.unfinished"):
        (tmp_path / left).mkdir(parents=True)
        (tmp_path / left / STATE_FILE).write_bytes(b"half")
    (tmp_path / "resume" / "step-000000001.removed").mkdir()
    (tmp_path / "resume" / "notes.txt").write_text("mine")
    with caplog.at_level(logging.WARNING):
        assert checkpoints_in(tmp_path).newest()[0] == 3
    assert names(tmp_path / "resume") == ["notes.txt", "step-000000003"]
    assert names(tmp_path / "checkpoints") == []
    assert caplog.text.count("saving it was interrupted") == 2
    assert "step-000000005.unfinished" in caplog.text


def test_killed_in_its_first_save_a_training_says_that_it_begins_at_step_0(tmp_path, caplog):
    (tmp_path / "resume" / "step-000000004.unfinished").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        assert checkpoints_in(tmp_path).newest() is None
    assert f"no checkpoint in {tmp_path} was finished: the training begins at step 0" in caplog.text


def test_none_at_all_is_no_error_and_leaves_no_trace(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        assert checkpoints_in(tmp_path).newest() is None
    assert not caplog.text
    assert names(tmp_path) == []


def test_the_one_that_was_gone_on_with_is_not_written_anew(tmp_path):
    """A signal right after resuming saves the same step: a kill or a full disk then must not cost it."""
    checkpoints_in(tmp_path).save(100, state(1))
    checkpoints = checkpoints_in(tmp_path)
    step, back = checkpoints.newest()
    with files_end_at(10):
        assert checkpoints.save(step, back) == str(tmp_path / "resume" / "step-000000100")
    assert checkpoints_in(tmp_path).newest()[0] == 100


def old_version_saves(output, step, arrays):
    """As the first version wrote it: one file, and a marker without a number."""
    folder = output / "resume" / f"step-{step:09}"
    folder.mkdir(parents=True)
    content = save(arrays)
    (folder / "state.safetensors").write_bytes(content)
    marker = {"step": step, "bytes": len(content), "sha256": sha256(content).hexdigest(), "recipe": RECIPE}
    (folder / "complete.json").write_text(json.dumps(marker))
    return folder


def test_what_an_older_version_saved_is_gone_on_with(tmp_path):
    old_version_saves(tmp_path, 30, state(3))
    checkpoints = checkpoints_in(tmp_path, keep=1)
    saved = checkpoints.newest()
    assert (saved[0], first_value(saved)) == (30, 3)
    checkpoints.save(40, state(4))
    assert names(tmp_path / "resume") == ["step-000000040"]


def test_what_an_older_version_saved_is_checked_like_any_other(tmp_path):
    old_version_saves(tmp_path, 20, state(2))
    torn = old_version_saves(tmp_path, 30, state(3)) / "state.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])
    assert checkpoints_in(tmp_path).newest()[0] == 20
    with pytest.raises(CheckpointError, match=r"lr: 0.1 → 0.2"):
        checkpoints_in(tmp_path, {**RECIPE, "lr": 0.2}).newest()


def test_what_a_newer_marin_saved_is_refused_and_never_overwritten(tmp_path):
    checkpoints_in(tmp_path).save(10, state(1))
    newer = tmp_path / "resume" / "step-000000020"
    newer.mkdir()
    (newer / "complete.json").write_text('{"format": 3, "shards": {}}')
    checkpoints = checkpoints_in(tmp_path, keep=1)
    with pytest.raises(
        NewerCheckpointError,
        match=r"step-000000020 was written by a newer Marin, in format 3 \(this one reads up to",
    ):
        checkpoints.newest()
    with pytest.raises(NewerCheckpointError):
        checkpoints.save(20, state(2))
    assert names(tmp_path / "resume") == ["step-000000010", "step-000000020"]
    for step in (30, 40):
        checkpoints.save(step, state(2))
    assert names(tmp_path / "resume") == ["step-000000020", "step-000000040"]
    assert (newer / "complete.json").read_text() == '{"format": 3, "shards": {}}'


def test_another_recipe_is_refused_with_the_keys(tmp_path):
    checkpoints_in(tmp_path).save(1, state(1))
    checkpoints_in(tmp_path, {"betas": [0.9, 0.95], "lr": 0.1}).newest()
    with pytest.raises(
        CheckpointError, match=r"settings: betas\[1\]: 0.95 → 0.99; lr: 0.1 → None.*a version of its own"
    ):
        checkpoints_in(tmp_path, {"betas": (0.9, 0.99)}).newest()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_never_saved(bad, tmp_path):
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, state(1))
    with pytest.raises(
        NonFiniteLossError,
        match=r"the state after step 2 was not saved: params.w holds infinite or NaN numbers. Nothing half written is "
        r"left. Last good checkpoint: .*step-000000001",
    ):
        checkpoints.save(2, state(bad))
    assert names(tmp_path / "resume") == ["step-000000001"]


def test_a_full_disk_keeps_the_old_one_and_leaves_nothing_half_done(tmp_path):
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, state(1))
    with files_end_at(100):
        with pytest.raises(
            StorageFullError,
            match=r"state after step 2 was not saved: .*step-000000002: no room to write .*free space.* "
            r"Nothing half written is left. Last good checkpoint: .*step-000000001",
        ):
            checkpoints.save(2, state(2))
    assert names(tmp_path / "resume") == ["step-000000001"]
    checkpoints.save(2, state(2))
    assert checkpoints_in(tmp_path).newest()[0] == 2


@pytest.mark.parametrize(
    "place", [(checkpoint_files, "write_tensors"), (checkpoint_files, "write_whole"), (rolling, "commit_file")]
)
def test_a_full_disk_is_told_alike_wherever_it_is_met(place, tmp_path, monkeypatch):
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, state(1))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*place, full)
        with pytest.raises(StorageFullError, match=r"step 2 was not saved: .* Last good checkpoint: .*step-000000001"):
            checkpoints.save(2, state(2))
    assert names(tmp_path / "resume") == ["step-000000001"]


def test_an_old_one_that_can_not_be_removed_stops_nothing(tmp_path, monkeypatch, caplog):
    checkpoints = checkpoints_in(tmp_path, keep=1)
    checkpoints.save(1, state(1))

    def forbidden(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "rename", forbidden)
        checkpoints.save(2, state(2))
    assert "step-000000001 is not needed any more, but was not removed" in caplog.text
    assert checkpoints.newest()[0] == 2


def test_a_checkpoint_that_may_not_be_read_is_not_passed_over_for_an_older_one(tmp_path, monkeypatch):
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save(1, state(1))
    checkpoints.save(2, state(2))

    def refuse(number):
        def check(*_):
            raise OSError(number, os.strerror(number))

        return check

    with monkeypatch.context() as patch:
        patch.setattr(rolling, "check_files", refuse(errno.EACCES))
        with pytest.raises(StoreError, match=r"step-000000002 can't be read .*permission"):
            checkpoints.newest()
        patch.setattr(rolling, "check_files", refuse(errno.EIO))
        with pytest.raises(CheckpointError, match=r"step-000000002: the disk can't read it any more"):
            checkpoints.newest()


def test_a_file_in_the_place_of_a_checkpoint_is_told(tmp_path):
    checkpoints_in(tmp_path).save(1, state(1))
    (tmp_path / "resume" / "step-000000002").write_text("?")
    with pytest.raises(AddressOccupiedError, match=r"step-000000002 is a file where a folder should be"):
        checkpoints_in(tmp_path).newest()


def test_a_damaged_checkpoint_is_not_read_by_name_either(tmp_path):
    folder = checkpoints_in(tmp_path).save(1, state(1))
    flip_a_bit(Path(folder))
    with pytest.raises(CheckpointError, match=r"step-000000001 is no whole checkpoint: its state-00000-of-00001"):
        read_checkpoint(folder)


def test_a_setting_that_the_checkpoint_does_not_know_is_at_its_default(tmp_path):
    before = {**RECIPE, "optimizer": {}}
    checkpoints_in(tmp_path, before).save(3, state(0.1))
    later = {**RECIPE, "packing": "concatenated", "optimizer": {"nesterov": False}}
    saved = RollingCheckpoints(str(tmp_path), later, CheckpointPolicy(), told=before).newest()
    assert saved is not None
    told = {**before, "packing": "segmented"}
    changed = RollingCheckpoints(str(tmp_path), {**later, "packing": "segmented"}, CheckpointPolicy(), told=told)
    with pytest.raises(CheckpointError, match=r"other settings: packing: None → 'segmented'"):
        changed.newest()
