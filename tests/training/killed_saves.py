"""A program: saves that are killed at each line of the code that saves, one after the other.

Prints what was found afterwards as JSON. It starts no thread and imports no JAX, so that it may fork.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from marin.processing import durable
from marin.training import checkpoint_files, rolling, tensor_file
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.rolling import RollingCheckpoints

CODE = {module.__file__ for module in (durable, checkpoint_files, rolling, tensor_file)} | {shutil.__file__}


def state(value: float) -> dict[str, Any]:
    return {"w": np.full((8,), value, np.float32), "v": np.full((4,), value, np.float32), "count": np.array(3)}


def checkpoints_in(output: Path) -> RollingCheckpoints:
    return RollingCheckpoints(str(output), {"lr": 0.1}, CheckpointPolicy(keep=1, every=4, keep_permanent=1))


def save_until_line(output: Path, number: int, step: int) -> bool:
    """Save in a child that is killed before its ``number``-th line: whether that happened."""
    child = os.fork()
    if child == 0:
        checkpoints = checkpoints_in(output)
        checkpoints.newest()
        left = number

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in CODE:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        checkpoints.save(step, state(step), permanent=step % 4 == 0)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def main(folder: Path, step: int) -> None:
    before = folder / "before"
    before.mkdir(parents=True)
    checkpoints = checkpoints_in(before)
    checkpoints.save(4, state(4), permanent=True)
    checkpoints.save(5, state(5))
    checkpoints.save(6, state(6))
    seen, faults, number = Counter[str](), list[str](), 0
    while True:
        output = folder / f"killed-{number}"
        shutil.copytree(before, output)
        if not save_until_line(output, number, step):
            break
        for path in output.glob("*/*"):
            if path.suffix:
                seen[path.suffix] += 1
        resumed = checkpoints_in(output)
        found = resumed.newest()
        assert found is not None
        seen[str(found[0])] += 1
        if found[0] not in (6, step) or found[1]["w"][0] != found[0] or list(output.glob("*/*.*")):
            faults.append(f"line {number}: {found[0]}, {sorted(map(str, output.glob('*/*')))}")
        resumed.save(9, state(9))
        if [path.name for path in (output / "resume").iterdir()] != ["step-000000009"]:
            faults.append(f"line {number}: then {sorted(map(str, output.glob('*/*')))}")
        shutil.rmtree(output)
        number += 1
    print(json.dumps({"kills": number, "seen": seen, "faults": faults}))


if __name__ == "__main__":
    os.fsync = lambda fd: None  # a kill, unlike a crash of the machine, loses nothing that was written
    tensor_file.PIECE_BYTES = 16
    main(Path(sys.argv[1]), int(sys.argv[2]))
