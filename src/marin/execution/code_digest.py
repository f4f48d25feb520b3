"""A digest of syntax: equal for code that does the same step by step, whoever formatted it, in every Python. Pure.

Positions, comments, docstrings, ``pass`` and other statements that do nothing, and how a string was quoted are not in
it. ``ast.dump`` is not stable enough: new fields of nodes appear in it with each Python.
"""

from __future__ import annotations

import ast
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
    hashed = hashlib.sha256()
    for token in _tokens(nodes):
        hashed.update(token.encode())
        hashed.update(b"\n")  # in no token
    return hashed.hexdigest()[:_DIGITS]


def is_without_effect(statement: ast.AST) -> bool:
    """Whether a statement does nothing: ``pass``, ``...``, a docstring, or another text on its own."""
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass)


def _tokens(nodes: Iterable[ast.AST]) -> Iterator[str]:
    # A stack instead of recursion: a long sum is as deep as it is long.
    stack: list[Any] = list(reversed(list(nodes)))
    while stack:
        item = stack.pop()
        if isinstance(item, _Mark):
            yield item
        elif isinstance(item, ast.Constant):
            yield _constant(item.value)
        elif isinstance(item, ast.AST):
            yield f"({type(item).__name__}"
            stack.append(_END)
            for name, value in reversed(list(_fields(item))):
                stack += (value, _Mark(f".{name}"))
        elif isinstance(item, list):
            yield "["
            stack.append(_END)
            stack.extend(reversed(cast("list[Any]", item)))
        else:
            yield _constant(item)


class _Mark(str):
    """Punctuation, as opposed to text of the code."""

    __slots__ = ()


_END = _Mark(")")


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    for name, value in ast.iter_fields(node):
        if name in _NO_MEANING:
            continue
        if isinstance(node, ast.JoinedStr):
            value = _joined(node.values)
        elif isinstance(value, list):
            value = [part for part in cast("list[Any]", value) if not is_without_effect(part)]
        # What a Python does not have yet, and what is not used, looks alike.
        if value is None or value == [] or (isinstance(value, ast.JoinedStr) and not value.values):
            continue
        yield name, value


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
