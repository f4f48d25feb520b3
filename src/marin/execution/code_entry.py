"""From a step function as it was given to the places in the source where its code begins."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias, cast

from marin.execution.lazy import ArtifactStep

MOST_OBJECTS = 1_000
"""So many objects below one step function are looked at: it may be bound to something large."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedEntry:
    """A name in a module: of a class, of a function that is only named, or of the whole module (no name)."""

    module: str
    qualname: str
    namespace: Mapping[str, Any] | None = None

    @property
    def key(self) -> object:
        return self.module, self.qualname


@dataclass(frozen=True, slots=True, eq=False)
class CodeEntry:
    """A function that is loaded: its code, and the globals in which its names are looked up."""

    code: CodeType
    namespace: Mapping[str, Any]

    @property
    def key(self) -> object:
        return id(self.code), id(self.namespace)


Entry: TypeAlias = NamedEntry | CodeEntry


def entries_of(function: Any) -> tuple[Entry, ...]:
    """Where the code of ``function`` begins: itself, what a decorator has wrapped, the functions that it was made with.

    Closures and bound arguments count by the functions and classes among them; their values are in the fingerprint.
    """
    function = unwrapped(function)
    if isinstance(function, str):
        module, _, qualname = function.partition(":")
        return (NamedEntry(module, qualname),)
    return tuple(_entries(function))


def unwrapped(function: Any) -> Any:
    """The author's function, or its name, in what Marin wraps around it (``remote``, ``apply``)."""
    while type(function).__module__.startswith("marin.execution.") and hasattr(function, "function"):
        function = function.function
    return function


def _entries(function: Any) -> Iterator[Entry]:
    seen = set[int]()
    todo = [function]
    # Of an object that is called, all that it holds counts; of others only what they are.
    called = {id(function), id(function.__self__) if isinstance(function, MethodType) else 0}
    while todo and len(seen) < MOST_OBJECTS:
        value = todo.pop()
        if id(value) in seen or value is None:
            continue
        seen.add(id(value))
        entry = _entry(value)
        if entry is not None:
            yield entry
        todo.extend(_parts(value, called=id(value) in called))


def _entry(value: Any) -> Entry | None:
    if isinstance(value, FunctionType):
        return CodeEntry(value.__code__, value.__globals__)
    if isinstance(value, ModuleType):
        return NamedEntry(value.__name__, "")
    if isinstance(value, functools.partial | MethodType | ArtifactStep | list | tuple | dict | set | frozenset):
        return None
    if isinstance(value, BuiltinFunctionType):
        return NamedEntry(str(value.__module__), value.__qualname__)
    named: type = value if isinstance(value, type) else type(value)
    return None if named.__module__ == "builtins" else _entry_of_class(named)


def _entry_of_class(cls: type) -> Entry:
    """By one of its methods: that knows the file, or the cell, which the name of a module in memory does not."""
    for name, value in vars(cls).items():
        if isinstance(value, FunctionType) and value.__globals__.get("__name__") == cls.__module__:
            code = value.__code__
            written = code.co_filename != "<string>" and "<locals>" not in code.co_qualname
            if written and code.co_qualname == f"{cls.__qualname__}.{name}":
                return CodeEntry(code, value.__globals__)
    return NamedEntry(cls.__module__, cls.__qualname__)


def _parts(value: Any, *, called: bool) -> Iterator[Any]:
    """What ``value`` was made with, as far as it may hold code."""
    if isinstance(value, ArtifactStep | type | ModuleType):  # a dependency has a record of its own
        return
    yield _attributes(value).get("__wrapped__")
    match value:
        case FunctionType():
            yield from _parts_of_function(value)
        case functools.partial():
            bound = cast("functools.partial[Any]", value)
            yield from (bound.func, *bound.args, *bound.keywords.values())
        case MethodType():
            yield from (value.__func__, value.__self__)
        case dict():
            yield from cast("dict[Any, Any]", value).values()
        case list() | tuple() | set() | frozenset():
            yield from cast("list[Any]", value)
        case _ if called:
            yield from _attributes(value).values()
        case _:
            pass


def _parts_of_function(function: FunctionType) -> Iterator[Any]:
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing was put into it yet
            yield cell.cell_contents


def _attributes(value: Any) -> dict[str, Any]:
    try:
        return dict(vars(value))
    except Exception:  # noqa: BLE001  # no attributes, or an object that answers in its own way
        return {}
