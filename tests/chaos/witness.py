"""Two witnesses of the chaos: ``watch`` reads records all the time, ``read`` loads artifacts, every byte of them."""

from __future__ import annotations

import glob
import json
import os
import random
import sys
import time
from pathlib import Path

from marin.errors import NotBuiltError, StoreError
from marin.execution import RunOptions, load
from marin.storage.local import LocalStore
from tests.chaos.audit import damage, listed
from tests.chaos.journal import tell
from tests.chaos.pipeline import handles


def watch(store: str) -> None:
    """Tells each change of a record: of its build, its state, or that it can't be read."""
    seen: dict[str, object] = {}
    while True:
        for place in glob.glob(f"{store}/**/.artifact.json", recursive=True, include_hidden=True):
            if "/.marin/" in place:
                continue
            address = os.path.relpath(os.path.dirname(place), store)
            try:
                with open(place, "rb") as file:
                    raw = file.read()
            except FileNotFoundError:
                continue
            name, _, version = address.rpartition("/")
            try:
                record = json.loads(raw)
                build = record["build"] or {}
                now = (record["state"], build.get("build_id"), build.get("manifest", {}).get("digest"))
            except (ValueError, KeyError):
                now = ("torn", None, None)
            if seen.get(address) != now:
                seen[address] = now
                state, build_id, digest = now
                tell("record", artifact=f"{name}@{version}", state=state, build=build_id, digest=digest)
        time.sleep(0.005)


def read(store: str, generations: int) -> None:
    chance = random.Random(1)
    while True:
        newest = min(int((time.monotonic() - float(os.environ["MARIN_CHAOS_BEGAN"])) / 4), generations - 1)
        generation = newest if chance.random() < 0.5 else chance.randint(0, newest)
        read_one(store, chance.choice(handles(generation)))
        time.sleep(0.002)


def read_one(store: str, handle) -> None:
    began = time.monotonic()
    me = str(handle.id)
    try:
        made = load(handle, options=RunOptions(prefix=store))
        folder = LocalStore(store, durable=False).relative(made.path)
        assert folder is not None
        # As a run does with the dev versions that its steps read: so nobody removes them meanwhile.
        with LocalStore(store, durable=False).hold(folder) if handle.id.is_mutable else open(os.devnull):
            wrong = damage(made.path)
            if wrong is None and (entries := len(listed(Path(made.path)))) != made.files:
                wrong = f"the record says {made.files} files, the manifest {entries}"
    except NotBuiltError:
        return
    except StoreError as fault:
        tell("bad_read", artifact=me, began=began, wrong=f"{type(fault).__name__}: {fault}")
        return
    except OSError as fault:
        tell("bad_read", artifact=me, began=began, wrong=f"{type(fault).__name__}: {fault}")
        return
    if wrong is not None:
        tell("bad_read", artifact=me, began=began, wrong=wrong, path=made.path)
    else:
        tell("good_read", artifact=me)


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(sys.argv[2])
    else:
        read(sys.argv[2], int(sys.argv[3]))
