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
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(**inputs)
    except TypeError:
        faults = "; ".join(_binding_faults(signature, inputs))
        raise InputsError(f"{who}: {_shown(function, signature)} can't be called with these inputs: {faults}") from None


def _binding_faults(signature: inspect.Signature, inputs: Mapping[str, Any]) -> Iterator[str]:
    parameters = signature.parameters.values()
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for each in parameters:
        if each.kind is each.POSITIONAL_ONLY and each.default is each.empty:
            yield f"{each.name!r} is positional-only, and inputs are passed by name: wrap the function"
        elif each.name in named and each.default is each.empty and each.name not in inputs:
            yield f"missing {each.name!r}" + (_RESERVED_HINT if each.name in RESERVED_NAMES else "")
    for name in inputs:
        if name not in named and not takes_any:
            near = difflib.get_close_matches(name, [each for each in named if each not in inputs], n=1)
            yield f"unexpected {name!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """None for what does not tell, such as some functions that are written in C."""
    try:
        return _cached_signature(function)
    except TypeError:  # can't be hashed, or can't be called
        return _own_signature(function)


def _own_signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


# A sweep makes thousands of handles of one function.
_cached_signature = functools.lru_cache(maxsize=128)(_own_signature)


def _shown(function: Callable[..., Any], signature: inspect.Signature) -> str:
    """``name(poems, language=...)``: defaults may be long, or nobody's business."""
    shown = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else _ELLIPSIS)
        for each in signature.parameters.values()
    ]
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name}{signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)}"


class _Ellipsis:
    def __repr__(self) -> str:
        return "..."


_ELLIPSIS = _Ellipsis()
