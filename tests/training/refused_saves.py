"""A program: saves on a disk that is really full, and in a folder that really may not be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

from marin.errors import MarinError
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.checkpoint_writer import CheckpointWriter
from marin.training.disk_need import free_bytes
from marin.training.rolling import RollingCheckpoints


def attempt(writer: CheckpointWriter, step: int, size: int) -> None:
    """Save in the background, and tell what came of it."""
    try:
        writer.save(step, {"w": np.full(size, float(step))})
        writer.finish()
        print(f"{step}: saved")
    except MarinError as fault:
        print(f"{step}: {type(fault).__name__}: {fault}")


def full(output: Path, writer: CheckpointWriter) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(output)], check=True)
    attempt(writer, 1, 100_000)
    attempt(writer, 2, 200_000)
    attempt(writer, 3, 50_000)
    unlimited = output / "unlimited"
    unlimited.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=0", "tmpfs", str(unlimited)], check=True)
    print("free:", free_bytes(str(unlimited)))


def forbidden(output: Path, writer: CheckpointWriter) -> None:
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    attempt(writer, 1, 10)
    os.chmod(output / "resume", 0o555)
    attempt(writer, 2, 10)
    os.chmod(output / "resume", 0o755)
    attempt(writer, 3, 10)


def main(case: str, output: Path) -> None:
    jax.tree.leaves({})  # whatever it loads when used, while that may be read
    checkpoints = RollingCheckpoints(str(output), {}, CheckpointPolicy())
    writer = CheckpointWriter(checkpoints, CheckpointPolicy())
    {"full": full, "forbidden": forbidden}[case](output, writer)
    found = RollingCheckpoints(str(output), {}, CheckpointPolicy()).newest()
    assert found is not None
    print("newest:", found[0], found[1]["w"][0])
    print("there:", *sorted(os.listdir(output / "resume")))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
