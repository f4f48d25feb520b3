"""Turns a step into bytes for its own process, and names the object that stands in the way if it can't be done."""

from __future__ import annotations

import functools
import inspect
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from marin.errors import UnpicklableStepError
from marin.execution.applied import AppliedFunction

_MAX_DEPTH = 20
_MAX_OBJECTS = 2_000


def check_sendable(step_id: str, function: Callable[[Any], Any] | str, config: Any = None) -> None:
    """Raise ``UnpicklableStepError`` that names the object inside ``function`` or ``config`` that can't travel.

    >>> check_sendable("tokens/poems@dev", "my_project.tokens:write")
    """
    dumped(step_id, function=function, config=config)


def dumped(step_id: str, **parts: Any) -> bytes:
    """``parts`` as one pickle. Functions and classes of a script, and closures, travel by value.

    Raises ``UnpicklableStepError``.
    """
    import cloudpickle  # noqa: PLC0415  # 30 ms that a run in which all is cached does not spend

    for name in {name for part in parts.values() for name in _module_names(part)}:
        module = sys.modules.get(name)
        if module is not None and not _is_importable(module):
            cloudpickle.register_pickle_by_value(module)

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, CodeType):
                # cloudpickle leaves out the file, without which a traceback does not lead to the user's line.
                return _code_of_file, (*self.dispatch_table[CodeType](obj), obj.co_filename)
            # msgspec keeps what it has learnt of a class on the class. That can't travel, and is learnt anew.
            if isinstance(obj, type) and "__msgspec_cache__" in vars(obj):
                del obj.__msgspec_cache__  # type: ignore[attr-defined]
            return super().reducer_override(obj)

    def dump(value: Any) -> bytes:
        buffer = io.BytesIO()
        Pickler(buffer).dump(value)
        return buffer.getvalue()

    try:
        return dump(parts)
    except Exception as fault:
        for name, part in parts.items():
            culprit = _find_culprit(name, part, dump)
            if culprit is not None:
                path, value = culprit
                raise UnpicklableStepError(
                    f"{step_id} runs in a process of its own, but {path} can't be sent there: "
                    f"it is {type(value).__qualname__} ({fault}). Make it inside the step function"
                ) from fault
        raise UnpicklableStepError(
            f"{step_id} runs in a process of its own, but can't be sent there: {fault}"
        ) from fault


def _code_of_file(make: Callable[..., CodeType], arguments: tuple[Any, ...], file: str) -> CodeType:
    return make(*arguments).replace(co_filename=file)


def _find_culprit(path: str, value: Any, dump: Callable[[Any], bytes]) -> tuple[str, Any] | None:
    """The innermost object below ``value`` that can't be pickled, and the way to it."""
    if _travels(value, dump):
        return None
    seen = {id(value)}
    for _ in range(_MAX_DEPTH):
        for part, inner in _parts(value):
            if len(seen) > _MAX_OBJECTS:
                return path, value
            if id(inner) in seen:
                continue
            seen.add(id(inner))
            if not _travels(inner, dump):
                path, value = path + part, inner
                break
        else:
            return path, value
    return path, value


def _travels(value: Any, dump: Callable[[Any], bytes]) -> bool:
    # A __reduce__ of the user's may raise anything: all of it means no.
    try:
        dump(value)
    except Exception:  # noqa: BLE001
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What ``value`` takes along when it is pickled by value, each with how one would write the way to it."""
    if isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield from ((f".args[{position}]", inner) for position, inner in enumerate(value.args))
        yield from ((f".keywords[{key!r}]", inner) for key, inner in value.keywords.items())
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"[{key!r}]", inner
            yield f" key {key!r}", key
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{position}]", inner) for position, inner in enumerate(value))
    elif isinstance(value, type):
        yield from ((f".{name}", inner) for name, inner in vars(value).items())
    else:
        yield from ((f".{name}", inner) for name, inner in getattr(value, "__dict__", {}).items())
        names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
        yield from ((f".{name}", getattr(value, name)) for name in names if hasattr(value, name))


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f" → closure variable {name!r}", cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for name in _global_names(function):
        if name in function.__globals__:
            yield f" → global variable {name!r}", function.__globals__[name]
    for position, default in enumerate(function.__defaults__ or ()):
        yield f" → default {position}", default
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f" → default of {name!r}", default


def _global_names(function: FunctionType) -> list[str]:
    names: list[str] = []
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names += code.co_names
        codes += [constant for constant in code.co_consts if isinstance(constant, type(code))]
    return names


def _module_names(part: Any) -> Iterator[str]:
    """The modules of a function, of a config, and of the members of a config that is a dict."""
    while isinstance(part, functools.partial | AppliedFunction):
        part = part.func if isinstance(part, functools.partial) else part.function
    # An object that holds a function of the author's, which it calls.
    if isinstance(held := getattr(part, "function", None), FunctionType):
        yield held.__module__
    for each in (part, *(part.values() if type(part) is dict else ())):
        name = getattr(inspect.unwrap(each) if callable(each) else type(each), "__module__", None)
        if isinstance(name, str):
            yield name


def _is_importable(module: ModuleType) -> bool:
    """Whether another process that has our ``sys.path`` finds this module under its name.

    A script that was loaded from its file under a made-up name is not found: what it defines travels by value.
    """
    if module.__name__ == "__main__" or module.__name__ in sys.builtin_module_names:
        return True  # by value already, and always there
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    parent, _, _ = module.__name__.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    if parent and path is None:
        return False
    for finder in sys.meta_path:
        found = finder.find_spec(module.__name__, path)
        if found is not None:
            return found.origin is None or os.path.realpath(found.origin) == os.path.realpath(file)
    return False
