"""What classes and functions are called in a fingerprint: the same in every process that can see them."""

from __future__ import annotations

import functools
import importlib
import sys
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType
from typing import Any

from marin.errors import FingerprintError

_MAIN_MODULES = ("__main__", "__mp_main__")
_MISSING = object()

MAX_WRAPPERS = 50
"""How many decorators are looked through; a guard against ``__wrapped__`` in a circle."""


@functools.lru_cache(maxsize=512)  # thousands of steps share a few types
def class_name(cls: type) -> str:
    """``module:qualname``, or the ``fingerprint_name`` that the class itself carries so that it can move.

    >>> class_name(PurePath), class_name(dict)
    ('pathlib:PurePath', 'builtins:dict')
    """
    # Own namespace only: a subclass is another class, and needs a name of its own.
    fixed = cls.__dict__.get("fingerprint_name")
    if fixed is None or isinstance(fixed, Enum):
        return qualified_name(cls.__module__, cls.__qualname__)
    if not isinstance(fixed, str) or not fixed:
        raise FingerprintError(
            f"{cls.__module__}.{cls.__qualname__}.fingerprint_name is {fixed!r}: "
            "give it a non-empty text, such as 'adam'"
        )
    return str(fixed)


def function_name(text: str) -> str:
    """The qualified name of a function that is given as ``"module:function"``; equal to that of the function itself."""
    module, _, qualname = text.partition(":")
    return qualified_name(module, qualname)


def qualified_name(module: str, qualname: str) -> str:
    """``module:qualname`` with the module's public name, whichever Python and however the script was started.

    >>> qualified_name("_functools", "reduce"), qualified_name("pathlib._local", "no_such_thing")
    ('functools:reduce', 'pathlib._local:no_such_thing')
    """
    return f"{_public_module(module_name(module), qualname)}:{qualname}"


def module_name(module: str) -> str:
    """The name under which others import ``module``: a script that runs as ``__main__`` has its file's name."""
    if module not in _MAIN_MODULES:
        return module
    main = sys.modules.get(module) or sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    # Under "python -m" the spec names the module. A spec called __main__ is that of a zip file or a folder.
    if spec is not None and spec.name not in _MAIN_MODULES:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    # A program from standard input has a file called <stdin>.
    return PurePath(file).stem if file and not file.startswith("<") else "__main__"


def is_found(value: object, module: str, qualname: str) -> bool:
    """Whether ``module:qualname`` is this very object, in the modules that are loaded."""
    found = find(module, qualname)
    # A class method is found as a new bound method each time.
    return found is value or getattr(found, "__func__", None) is value


def find(module: str, qualname: str) -> object:
    """What a loaded module calls ``qualname``, or ``None``. Imports nothing."""
    found: object = sys.modules.get(module, _MISSING)
    for part in qualname.split("."):
        found = getattr(found, part, _MISSING)
    return None if found is _MISSING else found


def is_wrapped(function: FunctionType) -> bool:
    """Whether a decorator's result has taken over the name of ``function``."""
    outer: Any = find(function.__module__, function.__qualname__)
    for _ in range(MAX_WRAPPERS):
        outer = getattr(outer, "__wrapped__", None)
        if outer is None or outer is function:
            break
    return outer is function


def is_lambda(function: FunctionType) -> bool:
    """Whether ``function`` was written as a ``lambda``, whatever it is called now."""
    return function.__code__.co_name == "<lambda>"


def describe(value: object) -> str:
    """How a message calls a value, without an address in memory.

    >>> describe(object()), describe(len)
    ('builtins.object object', 'function builtins.len')
    """
    if isinstance(value, FunctionType):
        code = value.__code__
        place = f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"
        return f"<lambda at {place}>" if is_lambda(value) else f"function {value.__qualname__} at {place}"
    if isinstance(value, BuiltinFunctionType):
        return f"function {value.__module__}.{value.__qualname__}"
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    return f"{type(value).__module__}.{type(value).__qualname__} object"


def _public_module(module: str, qualname: str) -> str:
    """The standard library moves things between private modules (``pathlib._local``); their public home stays."""
    top, *rest = module.split(".")
    if top not in sys.stdlib_module_names:
        return module
    if top.startswith("_") and top.lstrip("_") in sys.stdlib_module_names:
        candidate = top.lstrip("_")
        # Looked up by import: whether somebody has loaded it already must not decide the name.
        importlib.import_module(candidate)
    elif any(part.startswith("_") for part in rest):
        public = next(index for index, part in enumerate(rest) if part.startswith("_"))
        candidate = ".".join([top, *rest[:public]])
    else:
        return module
    found = find(candidate, qualname)
    return candidate if found is not None and found is find(module, qualname) else module
