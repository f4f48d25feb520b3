"""Leaves the build calls of a script out of its constants, so that only the rest of them counts as code."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from marin.execution.lazy import ArtifactStep

_DEPTH = 3
"""So many containers inside one another are looked into."""

_Span: TypeAlias = tuple[int, int, int | None, int | None]


def is_only_handles(value: Any, depth: int = _DEPTH) -> bool:
    """Whether ``value`` is a handle, or a container of nothing else, such as that of a sweep."""
    if (inner := _items(value)) is not None and depth:
        return bool(inner) and all(is_only_handles(each, depth - 1) for each in inner)
    return isinstance(value, ArtifactStep)


def has_handle(value: Any, depth: int = _DEPTH) -> bool:
    """Whether ``value`` is a handle, or holds one, among its attributes too."""
    if isinstance(value, ArtifactStep):
        return True
    inner = _items(value)
    if inner is None:
        inner = [] if isinstance(value, type) else list(_attributes(value).values())
    return depth > 0 and any(has_handle(each, depth - 1) for each in inner)


def without_builds(statement: ast.AST, value: Any, is_build: Callable[[ast.Call], bool]) -> ast.AST:
    """``statement`` with an empty place for each expression that made a handle in ``value``, what it has bound, and
    for each call that surely makes one.
    """
    spans = {_span(part) for part in ast.walk(statement) if isinstance(part, ast.Call) and is_build(part)}
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        spans.update(map(_span, _makers(statement.value, value)))
    return cast("ast.AST", _Cutter(spans).visit(copy.deepcopy(statement))) if spans else statement


class _Cutter(ast.NodeTransformer):
    def __init__(self, spans: set[_Span]) -> None:
        self._spans = spans

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and _span(node) in self._spans:
            return ast.Constant(...)
        return self.generic_visit(node)


def _makers(node: ast.expr, value: Any) -> Iterator[ast.expr]:
    """The parts of ``node`` whose values are handles, where it is written plainly which part made which value."""
    if is_only_handles(value):
        yield node
        return
    match node:
        case ast.Dict() if isinstance(value, dict):
            held = cast("dict[Any, Any]", value)
            for key, part in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield from _makers(part, held.get(key.value))
        case ast.List() | ast.Tuple() if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            if len(items) == len(node.elts):
                for part, each in zip(node.elts, items, strict=True):
                    yield from _makers(part, each)
        case ast.Call():
            yield from _makers_in_call(node, value)
        case _:
            pass


def _makers_in_call(call: ast.Call, value: Any) -> Iterator[ast.expr]:
    held = cast("dict[Any, Any]", value) if isinstance(value, dict) else _attributes(value)
    for name, part in zip(getattr(type(value), "__match_args__", ()), call.args, strict=False):
        yield from _makers(part, held.get(name))
    for keyword in call.keywords:
        yield from _makers(keyword.value, held.get(keyword.arg))


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        return list(cast("dict[Any, Any]", value).values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(cast("list[Any]", value))
    return None


def _attributes(value: Any) -> Mapping[Any, Any]:
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if type(held) is dict else {}


def _span(node: ast.expr) -> _Span:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
