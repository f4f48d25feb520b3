"""Trivial steps, each in a process of its own, one after the other: ``remote_steps.py COUNT STORE``."""

import sys

from marin.execution import ArtifactStep, RunOptions, remote, run

if __name__ == "__main__":
    count, store = int(sys.argv[1]), sys.argv[2]
    handles = [
        ArtifactStep(
            name=f"bench/s{index}",
            version="2026.07.01",
            run=remote("trivial_step:write"),
            build_config=lambda ctx: {"path": ctx.output_path},
        )
        for index in range(count)
    ]
    run(*handles, options=RunOptions(prefix=store, max_concurrent=1))
