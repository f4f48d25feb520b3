"""A project of source files for the tests of code: written, digested, edited, digested again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from textwrap import dedent

from marin.execution.code import code_of
from marin.execution.code_changes import RecordedCode, code_changes


class Project:
    """Files below one folder that is on ``sys.path``. Its modules are imported only by those who ask for that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, **files: str | bytes) -> None:
        """``rhymes__steps="..."`` is the file ``rhymes/steps.py``."""
        for name, text in files.items():
            file = self.folder / f"{name.replace('__', '/').replace('/init', '/__init__')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        importlib.invalidate_caches()

    def code(self, function: str = "rhymes.steps:train") -> RecordedCode:
        return code_of(function)

    def told_after(self, function: str = "rhymes.steps:train", **files: str | bytes) -> list[str]:
        """What is told to have changed once these files are written."""
        before = self.code(function)
        self.write(**files)
        return [str(change) for change in code_changes(before, self.code(function))]

    def load(self, module: str):
        """The module, imported anew."""
        for name in [name for name in sys.modules if name.partition(".")[0] == module.partition(".")[0]]:
            del sys.modules[name]
        return importlib.import_module(module)


def names(code: RecordedCode) -> set[str]:
    """Every definition, as ``module.name``."""
    return {f"{module}.{name}" for module, recorded in code.modules.items() for name in recorded.definitions}
