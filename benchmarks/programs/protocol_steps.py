"""What Marin does with the disk for a step, by hand and for a step alone: ``protocol_steps.py SHAPE SIZE STORE``.

A folder of its own for the attempt, a lease and then a record with digests that replace each other under a lock, the
data moved up. No plan, no fingerprint, no thread, no drift: the floor of this way of publishing.
"""

import fcntl
import hashlib
import os
import sys
from pathlib import Path

WIDTH = 10
RECORD = b"x" * 2500
LEASE = b"x" * 700


def replace(folder, data):
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        scratch = f".tmp-{os.urandom(8).hex()}"
        file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=lock)
        os.write(file, data)
        os.close(file)
        os.rename(scratch, ".artifact.json", src_dir_fd=lock, dst_dir_fd=lock)
    finally:
        os.close(lock)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def step(store, index):
    folder = f"{store}/bench/s{index}/2026.07.01"
    if read(f"{folder}/.artifact.json") is not None:
        return
    build = f"{folder}/.build-{index}"
    os.makedirs(build)
    replace(folder, LEASE)
    Path(build, "step.out").write_bytes(b"0123456789")
    with open(f"{build}/step.out", "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    for name in os.listdir(build):
        os.rename(f"{build}/{name}", f"{folder}/{name}")
    replace(folder, RECORD + digest.encode())
    os.rmdir(build)


if __name__ == "__main__":
    shape, size, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    for index in range(size * WIDTH if shape == "layered" else size):
        step(store, index)
