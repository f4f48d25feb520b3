"""Whether the disk has room for what a training will write, asked before step 0."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from marin.errors import NotEnoughResourcesError
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.rolling import PERMANENT_FOLDER, ROLLING_FOLDER


def free_bytes(folder: str) -> int | None:
    """What this user may still write where ``folder`` is; ``None`` if the file system does not tell.

    Some have no size: a tmpfs without a limit, and several on networks.
    """
    usage = shutil.disk_usage(folder)
    return usage.free if usage.total else None


def needed_bytes(policy: CheckpointPolicy, *, state_bytes: int, final_bytes: int, num_steps: int) -> int:
    """The most that lies in the output folder at any time: one checkpoint is always being written.

    >>> needed_bytes(CheckpointPolicy(keep=2, every=100), state_bytes=12, final_bytes=4, num_steps=1000)
    160
    """
    return state_bytes * (policy.keep + 1 + len(policy.permanent_steps(num_steps))) + final_bytes


def check_disk(
    output: str,
    policy: CheckpointPolicy,
    *,
    state_bytes: int,
    final_bytes: int,
    num_steps: int,
    free: Callable[[str], int | None] = free_bytes,
) -> None:
    """Raise ``NotEnoughResourcesError`` unless checkpoints and final files will fit where ``output`` lies.

    ``final_bytes`` are those of all that the training leaves beside checkpoints. What an interrupted attempt has left
    in ``output`` is taken into account.
    """
    room = free(output)
    needed = needed_bytes(policy, state_bytes=state_bytes, final_bytes=final_bytes, num_steps=num_steps)
    present = sum(_bytes_below(os.path.join(output, folder)) for folder in (ROLLING_FOLDER, PERMANENT_FOLDER))
    if room is None or needed <= room + present:
        return
    permanent = len(policy.permanent_steps(num_steps))
    raise NotEnoughResourcesError(
        f"{output}: the training will need {needed:,} bytes, and {room + present:,} are free there or taken by its own "
        f"checkpoints. A checkpoint has {state_bytes:,} bytes: {policy.keep} rolling, one being written, {permanent} "
        f"permanent; the final files {final_bytes:,}. Free some space, choose another store with --prefix, or set "
        "CheckpointPolicy(keep=...) lower, every= higher, or keep_permanent="
    )


def _bytes_below(folder: str) -> int:
    return sum(os.lstat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(folder) for name in names)
