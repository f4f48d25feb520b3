import re

import numpy as np
import pytest

from marin.errors import NotEnoughResourcesError
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.disk_need import check_disk, needed_bytes
from marin.training.rolling import RollingCheckpoints


def check(output, free, **changes):
    policy = CheckpointPolicy(**{"keep": 2, "every": 100, **changes})
    check_disk(str(output), policy, state_bytes=1200, final_bytes=400, num_steps=1000, free=lambda _: free)


def test_both_numbers_and_the_knobs_are_named(tmp_path):
    needed = 1200 * (2 + 1 + 10) + 400
    check(tmp_path, needed)
    with pytest.raises(NotEnoughResourcesError) as caught:
        check(tmp_path, needed - 1)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}: the training will need 16,000 bytes, and 15,999 are free there")
    assert "A checkpoint has 1,200 bytes: 2 rolling, one being written, 10 permanent; the final files 400." in message
    for knob in ("--prefix", "keep=", "every=", "keep_permanent="):
        assert knob in message


def test_what_is_kept_counts_and_what_is_removed_again_does_not(tmp_path):
    check(tmp_path, 1200 * (2 + 1 + 3) + 400, keep_permanent=3)
    check(tmp_path, 1200 * (1 + 1) + 400, keep=1, every=None)
    with pytest.raises(NotEnoughResourcesError):
        check(tmp_path, 1200 * (1 + 1) + 399, keep=1, every=None)


def test_what_lies_there_of_an_interrupted_attempt_needs_no_room_again(tmp_path):
    saved = RollingCheckpoints(str(tmp_path), {}, CheckpointPolicy()).save(3, {"w": np.zeros(100)})
    with pytest.raises(NotEnoughResourcesError) as caught:
        check(tmp_path, 10_000)
    [there] = re.findall(r"and ([\d,]+) are free there or taken by its own checkpoints", str(caught.value))
    assert saved
    assert int(there.replace(",", "")) > 10_000 + 800


def test_a_file_system_that_does_not_tell_its_size_refuses_nothing(tmp_path):
    check(tmp_path, None)


def test_the_disk_itself_is_asked(tmp_path):
    with pytest.raises(NotEnoughResourcesError, match=r"will need 3,000,000,000,000,000,000 bytes"):
        check_disk(str(tmp_path), CheckpointPolicy(), state_bytes=10**18, final_bytes=0, num_steps=1)
    check_disk(str(tmp_path), CheckpointPolicy(), state_bytes=1, final_bytes=0, num_steps=1)


def test_a_permanent_one_counts_for_each_step_that_has_one():
    assert needed_bytes(CheckpointPolicy(every=10), state_bytes=1, final_bytes=0, num_steps=19) == 4
    assert needed_bytes(CheckpointPolicy(every=10), state_bytes=1, final_bytes=0, num_steps=20) == 5
