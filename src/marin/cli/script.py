"""Running a user's script inside the command, as Python would run it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from marin.errors import ConfigurationError
from marin.execution.graph import Step
from marin.execution.lazy import ArtifactStep

_OUR_MAIN = sys.modules["__main__"]  # kept: the module that a script replaces must not go away under us


def run_script(script: Path, arguments: Sequence[str]) -> ModuleType:
    """Execute ``script`` as ``__main__``, and leave it there: its functions are found by it when they travel.

    Raises ``ConfigurationError`` if it is no Python, and whatever the script raises.
    """
    place = script.resolve()
    code = _compiled(script, place)
    module = ModuleType("__main__")
    module.__file__ = str(place)
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(place.parent))
    exec(code, module.__dict__)
    return module


def _compiled(script: Path, place: Path) -> CodeType:
    try:
        return compile(place.read_bytes(), str(place), "exec", dont_inherit=True)  # our __future__ is not the script's
    except SyntaxError as fault:
        line = (fault.text or "").strip()
        where = f"{script}:{fault.lineno}" if fault.lineno else str(script)
        raise ConfigurationError(f"{where}: {fault.msg}" + (f"\n    {line}" if line else "")) from None
    except ValueError as fault:  # such as null bytes, before Python 3.12
        raise ConfigurationError(f"{script} is no Python: {fault}") from None


def module_targets(module: ModuleType, script: Path) -> list[Step]:
    """The handles at the top of the module (also in its lists and dicts) that no other one of them depends on.

    Raises ``ConfigurationError`` if there are none.
    """
    handles = list({id(handle): handle for handle in _handles(module)}.values())
    used = _ids_of_dependencies(handles)
    targets = [handle for handle in handles if handle.id not in used]
    if not targets:
        raise ConfigurationError(
            f"{script} has nothing to make: end it with experiment_main(build), where build returns the handles, "
            "or keep a handle in a variable at the top level of the script"
        )
    return targets


def _handles(module: ModuleType) -> Iterator[Step]:
    for value in list(vars(module).values()):
        if isinstance(value, ArtifactStep):
            yield cast("Step", value)
        elif isinstance(value, list | tuple | dict):
            inner = cast("dict[Any, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
            yield from (item for item in inner if isinstance(item, ArtifactStep))


def _ids_of_dependencies(handles: Sequence[Step]) -> set[object]:
    used = set[object]()
    todo = list(handles)
    while todo:
        for dep in todo.pop().deps:
            if dep.id not in used:
                used.add(dep.id)
                todo.append(dep)
    return used
