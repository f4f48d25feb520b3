"""Trivial steps in upstream Marin: ``MARIN_PREFIX=STORE upstream_steps.py SHAPE SIZE``."""

import sys
from pathlib import Path

from marin.execution.artifact import Artifact
from marin.execution.lazy import ArtifactStep, run

VERSION = "2026.07.01"
WIDTH = 10


def write(config):
    folder = Path(config["path"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step.out").write_bytes(b"0123456789")


def step(index, deps=()):
    def build_config(ctx):
        return {"path": ctx.output_path, "index": index, "after": [ctx.artifact_path(dep) for dep in deps]}

    return ArtifactStep(
        name=f"bench/s{index}",
        version=VERSION,
        artifact_type=Artifact,
        run=write,
        build_config=build_config,
        deps=tuple(deps),
    )


if __name__ == "__main__":
    shape, size = sys.argv[1], int(sys.argv[2])
    if shape == "independent":
        handles = [step(index) for index in range(size)]
    elif shape == "chain":
        handles = [step(0)]
        for index in range(1, size):
            handles.append(step(index, (handles[-1],)))
        handles = handles[-1:]
    else:
        handles = ()
        for depth in range(size):
            handles = tuple(step(depth * WIDTH + place, handles) for place in range(WIDTH))
    run(*handles)
