"""A digest of syntax: equal for code that does the same step by step, whoever formatted it, in every Python. Pure.

Positions, comments, docstrings, ``pass`` and other statements that do nothing, and how a string was quoted are not in
it. ``ast.dump`` is not stable enough: new fields of nodes appear in it with each Python.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, cast

_DIGITS = 16
_NO_MEANING = {"ctx", "type_comment", "kind", "type_ignores"}
"""Fields that follow from the rest, or that only type checkers and printers read."""


def syntax_digest(nodes: Iterable[ast.AST]) -> str:
    """16 hex digits for the syntax of ``nodes``, in order.

    >>> one, other = (ast.parse(text) for text in ("x = f( 1 )  # once", "x = f(1)"))
    >>> syntax_digest([one]) == syntax_digest([other])
    True
    """
    # No token has a line end.
    return hashlib.sha256("".join(f"{token}\n" for token in _tokens(nodes)).encode()).hexdigest()[:_DIGITS]


def is_without_effect(statement: ast.AST) -> bool:
    """Whether a statement does nothing: ``pass``, ``...``, a docstring, or another text on its own."""
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass)


def _tokens(nodes: Iterable[ast.AST]) -> list[str]:
    tokens: list[str] = []
    # A stack instead of recursion: a long sum is as deep as it is long. A text on it is a token already.
    stack: list[Any] = list(nodes)[::-1]
    while stack:
        item = stack.pop()
        if type(item) is str:
            tokens.append(item)
        elif type(item) is ast.Constant:
            tokens.append(_constant(item.value))
        else:
            stack.append(")")
            if type(item) is list:
                tokens.append("[")
                stack.extend(map(_part, reversed(cast("list[Any]", item))))
            else:
                tokens.append(f"({type(item).__name__}")
                for mark, value in reversed(list(_fields(item))):
                    stack += (_part(value), mark)
    return tokens


def _part(value: object) -> Any:
    return value if isinstance(value, ast.AST | list) else _constant(value)


@functools.cache
def _names(kind: type[ast.AST]) -> tuple[tuple[str, str], ...]:
    return tuple((name, f".{name}") for name in kind._fields if name not in _NO_MEANING)


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    for name, mark in _names(type(node)):
        value = getattr(node, name, None)
        if value is None:
            continue
        if type(value) is list:
            parts = cast("list[Any]", value)
            value = (
                _joined(parts)
                if isinstance(node, ast.JoinedStr)
                else [part for part in parts if not is_without_effect(part)]
            )
        # What a Python does not have yet, and what is not used, looks alike.
        if value == [] or (type(value) is ast.JoinedStr and not value.values):
            continue
        yield mark, value


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string. Pythons differ in where they cut the text between its braces."""
    merged: list[ast.expr] = []
    for part in values:
        last = merged[-1] if merged else None
        if isinstance(part, ast.Constant) and isinstance(last, ast.Constant):
            merged[-1] = ast.Constant(f"{last.value}{part.value}")
        elif not (isinstance(part, ast.Constant) and part.value == ""):
            merged.append(part)
    return merged


def _constant(value: object) -> str:
    # Without an upper limit of digits; and without a table of printable characters, which grows with each Python.
    text = f"{value:x}" if type(value) is int else ascii(value)
    return f"{type(value).__name__} {text}"
