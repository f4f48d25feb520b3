"""Trivial steps in joblib, one memorized function: ``joblib_steps.py SHAPE SIZE STORE``."""

import sys
from pathlib import Path

from joblib import Memory

WIDTH = 10

shape, size, store = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
memory = Memory(store / "joblib", verbose=0)


@memory.cache
def step(index, after):
    path = store / f"{index}.step.out"
    path.write_bytes(b"0123456789")
    return str(path)


if shape == "independent":
    for index in range(size):
        step(index, [])
elif shape == "chain":
    after = []
    for index in range(size):
        after = [step(index, after)]
else:
    layer = []
    for depth in range(size):
        layer = [step(depth * WIDTH + place, layer) for place in range(WIDTH)]
