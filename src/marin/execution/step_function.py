"""Finds the step function that a name stands for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from marin.errors import ConfigurationError

_EXTRAS = {
    "data": ("numpy", "pyarrow", "tokenizers", "orjson", "zstandard", "huggingface_hub"),
    "train": ("jax", "jaxlib", "optax", "safetensors"),
}


def load_function(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """The step function itself; a name ``module:function`` is imported.

    Raises ``ConfigurationError`` that says whether the module, something that it imports, or the function is missing.

    >>> load_function("builtins:len")("poem")
    4
    """
    if not isinstance(function, str):
        return function
    module_name, _, attribute = function.partition(":")
    found: Any = _import(module_name, function)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            import difflib  # noqa: PLC0415  # only for a mistyped name

            near = difflib.get_close_matches(part, [name for name in dir(found) if not name.startswith("__")], n=1)
            hint = f": did you mean {near[0]!r}?" if near else ": correct the name, or define it there"
            raise ConfigurationError(f"step function {function!r}: {module_name} has no {attribute!r}{hint}") from None
    if not callable(found):
        raise ConfigurationError(
            f"step function {function!r} is {type(found).__name__}, which can't be called: {found!r}"
        )
    return found


def call_fault(function: Callable[..., Any]) -> str | None:
    """What is wrong with calling ``function`` with a config and nothing else; None if nothing is, or it can't be told.

    >>> call_fault(len)
    >>> call_fault(divmod)
    'divmod(x, y, /) takes 2 parameters, and is called with one: the config'
    """
    code = function.__code__ if isinstance(function, FunctionType) else None
    if code is not None and code.co_argcount == 1 and code.co_kwonlyargcount == 0:
        return None  # nearly all are: a signature takes longer than the rest of making a handle
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None  # some of what is written in C does not tell
    try:
        signature.bind(None)
    except TypeError:
        bare = signature.replace(
            parameters=[each.replace(annotation=each.empty) for each in signature.parameters.values()],
            return_annotation=signature.empty,
        )
        count = len(signature.parameters)
        takes = {0: "no parameter", 1: "1 parameter by name only"}.get(count, f"{count} parameters")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{name}{bare} takes {takes}, and is called with one: the config"
    return None


def _import(module_name: str, function: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as fault:
        missing = fault.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ConfigurationError(
                f"step function {function!r}: there is no module {missing!r}: correct the name, or install its package"
            ) from fault
        raise ConfigurationError(
            f"step function {function!r}: {_import_fault(module_name, fault)}{_hint(missing)}"
        ) from fault
    except Exception as fault:
        raise ConfigurationError(f"step function {function!r}: {_import_fault(module_name, fault)}") from fault


def _import_fault(module_name: str, fault: Exception) -> str:
    return f"importing {module_name} failed: {type(fault).__name__}: {fault}"


def _hint(missing: str) -> str:
    root = missing.partition(".")[0]
    for extra, modules in _EXTRAS.items():
        if root in modules:
            return f". Install it with: pip install 'marin[{extra}]'"
    return ". Install the package that it is in"
