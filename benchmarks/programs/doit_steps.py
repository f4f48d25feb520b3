"""Trivial tasks in doit: ``python -m doit run --file doit_steps.py shape=SHAPE size=SIZE store=STORE``."""

from pathlib import Path

from doit import get_var
from doit.tools import run_once

WIDTH = 10

shape, size, store = get_var("shape"), int(get_var("size")), Path(get_var("store"))


def write(targets):
    Path(targets[0]).write_bytes(b"0123456789")


def path(index):
    return str(store / f"{index}.step.out")


def task(index, after):
    found = {"name": str(index), "actions": [write], "targets": [path(index)]}
    return {**found, "file_dep": after} if after else {**found, "uptodate": [run_once]}


def task_step():
    if shape == "layered":
        for depth in range(size):
            before = [path((depth - 1) * WIDTH + place) for place in range(WIDTH)] if depth else []
            for place in range(WIDTH):
                yield task(depth * WIDTH + place, before)
    else:
        for index in range(size):
            yield task(index, [path(index - 1)] if shape == "chain" and index else [])
