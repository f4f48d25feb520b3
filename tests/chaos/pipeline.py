"""The graph that the runners of the chaos share: fixed and ``dev`` steps, in threads and in processes of their own.

Each generation is a version of its own, so that there is always something that has not been built yet. A file of an
artifact begins with the name of the attempt that wrote it: what two attempts made can be told apart.
"""

from __future__ import annotations

import datetime
import os
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.execution import Artifact, ArtifactStep, remote
from tests.chaos.audit import damage
from tests.chaos.journal import tell

FAILURES_VARIABLE = "MARIN_CHAOS_FAILURES"
"""How often a step fails on purpose, as a fraction."""

PACE_VARIABLE = "MARIN_CHAOS_PACE"
"""What the duration of each step is multiplied with."""


class PlannedFailure(Exception):
    """A step that was meant to fail."""


class BadInput(Exception):
    """An input that is not what its manifest says."""


@dataclass(frozen=True)
class Parts(Artifact):
    files: int


def version_of(generation: int) -> str:
    return f"{datetime.date(2026, 1, 1) + datetime.timedelta(days=generation):%Y.%m.%d}"


def make(config: dict[str, Any]) -> Parts:
    """Write some files, slowly; look at the inputs before and after."""
    out = Path(config["output_path"])
    me, attempt = config["me"], out.name.removeprefix(".build-")
    found = sorted(path.name for path in out.rglob("*") if path.is_file())
    tell("attempt", artifact=me, build=attempt, found=found)
    if found and not config["resumable"]:
        tell("folder_not_empty", artifact=me, build=attempt, found=found)
    children = [subprocess.Popen(["sleep", "1000"]) for _ in range(config["children"])]
    check_inputs(me, config["inputs"])
    pause = config["seconds"] / config["files"] * float(os.environ.get(PACE_VARIABLE, "1"))
    for number in range(config["files"]):
        write_file(out, number, f"{attempt} {me} {number}\n" * 50, pause * random.uniform(0.5, 1.5))
        if random.random() < float(os.environ.get(FAILURES_VARIABLE, "0")) / config["files"]:
            raise PlannedFailure(me)
    check_inputs(me, config["inputs"])
    if config["threads"]:
        assert not children
    tell("finished", artifact=me, build=attempt)
    return Parts(files=config["files"])


def write_file(out: Path, number: int, text: str, pause: float) -> None:
    """In two halves, with a pause between; under its own name only when it is whole."""
    place = out / (".index" if number == 0 else f"shards/{number}" if number % 2 else f"{number}.txt")
    if place.exists():
        return  # resumed
    place.parent.mkdir(exist_ok=True)
    half = place.with_name(f"{place.name}.half")
    with open(half, "w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        time.sleep(pause)
        file.write(text[len(text) // 2 :])
    os.replace(half, place)


def check_inputs(me: str, inputs: dict[str, str]) -> None:
    began = time.monotonic()
    for dep, path in inputs.items():
        if (wrong := damage(path)) is not None:
            tell("bad_input", artifact=me, of=dep, path=path, began=began, wrong=wrong)
            raise BadInput(f"{dep}: {wrong}")


def step(
    name: str,
    version: str,
    *deps: ArtifactStep[Any],
    seconds: float = 0.1,
    process: bool = False,
    resumable: bool = False,
    children: int = 0,
    files: int = 4,
) -> ArtifactStep[Parts]:
    return ArtifactStep(
        name=name,
        version=version,
        artifact_type=Parts,
        run=remote(make, resumable=resumable) if process else make,
        deps=deps,
        build_config=lambda ctx: {
            "output_path": ctx.output_path,
            "inputs": {str(dep.id): ctx.artifact_path(dep) for dep in deps},
            "me": f"{name}@{version}",
            "seconds": seconds,
            "resumable": resumable,
            "children": children,
            "threads": not process,
            "files": files,
        },
    )


def handles(generation: int) -> list[ArtifactStep[Parts]]:
    """All steps of one generation, inputs first; the ``dev`` ones are the same in each.

    Those of more than eight files have their manifest beside the data, the others in the record, which the folder of a
    ``dev`` build does not have.
    """
    day = version_of(generation)
    a = step("raw/a", day)
    b = step("raw/b", day, seconds=0.3, process=True, children=2)
    c = step("raw/c", day, seconds=0.02, files=1)
    live = step("raw/live", "dev", seconds=0.2, files=9)
    merged = step("merged", day, a, b, seconds=0.8, process=True, resumable=True, files=6)
    picked = step("picked", day, b, c, seconds=0.3)
    model = step("models/big", day, merged, picked, seconds=1.5, process=True, resumable=True, files=12)
    scores = step("scores/deep/er", day, model, picked, a, seconds=0.1)
    mixed = step("mixed", "dev", live, step("raw/a", version_of(0)), seconds=0.5, process=True, children=1, files=9)
    report = step("reports", "my-dev", mixed, live, seconds=0.2, files=9)
    return [a, b, c, live, merged, picked, model, scores, mixed, report]
