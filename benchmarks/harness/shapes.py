"""Graphs of trivial steps, as each tool runs them."""

from __future__ import annotations

import sys

from benchmarks.harness.benchmark import PROGRAMS, is_here, program
from benchmarks.harness.command import Command

WIDTH = 10
"""How many steps a layer of the shape ``layered`` has; each depends on all of the layer before."""

PEERS = ("joblib", "doit", "luigi")

NOT_DURABLE = {"MARIN_DURABLE": "0"}


def steps_of(shape: str, size: int) -> int:
    """How many steps a graph has whose size is ``size``: its steps, or the layers of ``layered``."""
    return size * WIDTH if shape == "layered" else size


def here() -> list[str]:
    """The peers that this environment has."""
    return [peer for peer in PEERS if is_here(peer)]


def marin(shape: str, size: int, *, label: str = "marin", durable: bool = False, action: str = "run") -> Command:
    """Our own program."""
    return Command(
        label=label,
        size=size,
        argv=program("marin_steps.py", shape, size, "{store}", action),
        env={} if durable else NOT_DURABLE,
        outputs=steps_of(shape, size) if action == "run" else None,
    )


def peer(tool: str, shape: str, size: int) -> Command:
    """The same graph in ``joblib``, ``doit``, ``luigi``, or in one of the floors, ``plain`` and ``protocol``."""
    argv = program(f"{tool}_steps.py", shape, size, "{store}")
    if tool == "doit":
        given = (f"shape={shape}", f"size={size}", "store={store}")
        options = ("--file", str(PROGRAMS / "doit_steps.py"), "--db-file", "{store}/doit.db")
        argv = (sys.executable, "-m", "doit", "run", *options, *given)
    return Command(label=tool, size=size, argv=argv, outputs=steps_of(shape, size))
