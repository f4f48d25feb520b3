"""Plain functions as step functions: called with inputs by name, and checked against their signature before that."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marin.errors import InputsError
from marin.execution.step_function import load_function

RESERVED_NAMES = ("name", "fn", "version", "artifact_type")
"""What ``apply`` takes for itself, so that no input can be called like it."""

_OF_REMOTE = ("resources", "retries", "retry_on", "timeout", "resumable", "grace", "env", "all_hosts")
_RESERVED_HINT = ", which is an argument of apply itself: give it with functools.partial"


@dataclass(frozen=True)
class AppliedFunction:
    """A step function that calls ``function(**config)``. ``apply`` makes it of a plain function, or of its name."""

    function: Callable[..., Any] | str

    def __call__(self, config: Mapping[str, Any]) -> Any:
        function = load_function(self.function)
        if function is not self.function:  # its signature was not known when the handle was made
            check_inputs(function, config, str(self.function))
        return function(**config)


def check_inputs(function: Callable[..., Any], inputs: Mapping[str, Any], who: str) -> None:
    """Raise ``InputsError`` unless ``function(**inputs)`` fits its signature. ``who`` begins the message."""
    names = _names(function)
    if names is None:
        return
    fits = names.required <= inputs.keys() and (names.takes_any or inputs.keys() <= names.named)
    if not fits or names.positional:
        faults = "; ".join(_binding_faults(names, inputs))
        raise InputsError(f"{who}: {_shown(function, names)} can't be called with these inputs: {faults}")


@dataclass(frozen=True)
class _Names:
    """What a function can be called with by name. ``positional``: what it must be given and has no name."""

    signature: inspect.Signature
    required: frozenset[str]
    named: frozenset[str]
    positional: frozenset[str]
    takes_any: bool


def _binding_faults(names: _Names, inputs: Mapping[str, Any]) -> Iterator[str]:
    for name in names.signature.parameters:
        if name in names.positional:
            yield f"{name!r} is positional-only, and inputs are passed by name: wrap the function"
        elif name in names.required and name not in inputs:
            yield f"missing {name!r}" + (_RESERVED_HINT if name in RESERVED_NAMES else "")
    for name in inputs:
        if name not in names.named and not names.takes_any:
            near = difflib.get_close_matches(name, sorted(names.named - inputs.keys()), n=1)
            yield f"unexpected {name!r}{_hint(name, near)}"


def _hint(name: str, near: list[str]) -> str:
    if name in _OF_REMOTE:
        return f", which is said to remote: apply(name, remote(function, {name}=...), ...)"
    return f" (did you mean {near[0]!r}?)" if near else ""


def _names(function: Callable[..., Any]) -> _Names | None:
    """None for what does not tell, such as some functions that are written in C."""
    try:
        return _cached_names(function)
    except TypeError:  # can't be hashed
        return _read_names(function)


def _read_names(function: Callable[..., Any]) -> _Names | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = signature.parameters.values()
    named = {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    bare = {each.name for each in parameters if each.default is each.empty}
    positional = {each.name for each in parameters if each.kind is each.POSITIONAL_ONLY}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    return _Names(signature, frozenset(bare & named), frozenset(named), frozenset(bare & positional), takes_any)


# A sweep makes thousands of handles of one function.
_cached_names = functools.lru_cache(maxsize=128)(_read_names)


def _shown(function: Callable[..., Any], names: _Names) -> str:
    """``name(poems, language=...)``: defaults may be long, or nobody's business."""
    shown = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else _ELLIPSIS)
        for each in names.signature.parameters.values()
    ]
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name}{names.signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)}"


class _Ellipsis:
    def __repr__(self) -> str:
        return "..."


_ELLIPSIS = _Ellipsis()
