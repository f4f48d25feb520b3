"""Trivial steps in Marin: ``marin_steps.py SHAPE SIZE STORE [run|plan|lower]``."""

import sys
import time
from pathlib import Path

from marin.execution import ArtifactStep, RunOptions, lower, plan, run

VERSION = "2026.07.01"
WIDTH = 10


def write(config):
    Path(config["path"], "step.out").write_bytes(b"0123456789")


def step(index, deps=()):
    def build_config(ctx):
        return {"path": ctx.output_path, "index": index, "after": [ctx.artifact_path(dep) for dep in deps]}

    return ArtifactStep(name=f"bench/s{index}", version=VERSION, run=write, build_config=build_config, deps=deps)


def independent(size):
    return [step(index) for index in range(size)]


def chain(size):
    handles = [step(0)]
    for index in range(1, size):
        handles.append(step(index, (handles[-1],)))
    return handles[-1:]


def layered(size):
    layer = ()
    for depth in range(size):
        layer = tuple(step(depth * WIDTH + place, layer) for place in range(WIDTH))
    return layer


if __name__ == "__main__":
    shape, size, store, action = sys.argv[1:]
    handles = {"independent": independent, "chain": chain, "layered": layered}[shape](int(size))
    options = RunOptions(prefix=store)
    begun, cpu_begun = time.perf_counter(), time.process_time()
    if action == "run":
        run(*handles, options=options)
    elif action == "plan":
        planned = plan(*handles, options=options)
        assert not planned.to_make, "the store was to have it all"
    else:
        assert len(lower(*handles).steps) == int(size)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
    print(f'measured: {{"{action}": {seconds}, "{action}_cpu": {cpu_seconds}}}')
