"""The same files without any tool: written unless they are there. ``plain_steps.py SHAPE SIZE STORE``."""

import sys
from pathlib import Path

WIDTH = 10

shape, size, store = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
for index in range(size * WIDTH if shape == "layered" else size):
    path = store / f"{index}.step.out"
    if not path.exists():
        path.write_bytes(b"0123456789")
