"""The definitions of one source text: its functions, classes and constants by name. Pure.

A definition is every statement at the top of the module that binds a name, or changes what it holds, with the
conditions that it stands under.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, TypeAlias

from marin.execution.code_digest import is_without_effect, syntax_digest
from marin.execution.code_names import (
    Function,
    ImportTarget,
    Reference,
    references,
    references_of_function,
    scope_of,
)

What: TypeAlias = Literal["function", "class", "constant"]
Statement: TypeAlias = tuple[ast.AST, ...]
"""The conditions that a statement stands under, outermost first, and the statement itself."""

_MADE_INSIDE = re.compile(r"<(?:list|set|dict)comp>\.(?:<locals>\.)?|<genexpr>\.(?:<locals>\.)?")
"""In the qualified name of a function that a comprehension makes; newer Pythons have no scope there."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One function, class or constant: a digest of its syntax, and the names that it uses."""

    what: What
    digest: str
    references: frozenset[Reference]

    def __str__(self) -> str:
        return f"{self.what}:{self.digest}"


class ModuleSyntax:
    """What one source text defines. ``imports`` and ``stars``: what it imports at its top."""

    def __init__(self, tree: ast.Module, *, has_globals: bool = True) -> None:
        self.imports: dict[str, list[ImportTarget]] = {}
        self.stars: list[ImportTarget] = []
        self.writers: dict[str, list[str]] = {}
        """Functions and classes that rebind a name with ``global``."""
        self._tree = tree
        self._has_globals = has_globals
        self._statements: dict[str, list[Statement]] = {}
        self._definitions: dict[tuple[str, bool], Definition] = {}
        self._functions: dict[str, list[Function | ast.Lambda]] | None = None
        changed: list[tuple[str, Statement]] = []
        for statement in _top_statements(tree):
            self._note(statement, changed)
        for name, statement in changed:
            if name in self._statements:
                self._statements[name].append(statement)

    @property
    def names(self) -> list[str]:
        """Every name that is defined or imported here."""
        return [*self._statements, *(name for name in self.imports if name not in self._statements)]

    def binds(self, name: str) -> bool:
        """Whether the module itself gives ``name`` something to hold."""
        return name in self._statements or name in self.imports or name in self.writers

    def definition(
        self, name: str, *, holds_handle: bool = False, without: Callable[[ast.AST], ast.AST] | None = None
    ) -> Definition | None:
        """What the module defines as ``name``. ``None``: nothing; it may import it.

        ``holds_handle``: what it holds is a handle of a pipeline, so that the calls which made it do not count.
        ``without``: leaves out what does not count of a statement that is no function or class.
        """
        statements = self._statements.get(name, [])
        if holds_handle:
            statements = [statement for statement in statements if isinstance(statement[-1], Function | ast.ClassDef)]
        if not statements:
            return None
        if without is not None:  # what it leaves out depends on values: not for keeps
            nodes = [without(node) if isinstance(node, ast.stmt) else node for each in statements for node in each]
            return Definition(_what(statements), syntax_digest(nodes), references(nodes))
        known = self._definitions.get((name, holds_handle))
        if known is None:
            nodes = [node for statement in statements for node in statement]
            known = Definition(_what(statements), syntax_digest(nodes), references(nodes))
            self._definitions[name, holds_handle] = known
        return known

    def calls(self, name: str) -> list[Reference] | None:
        """What is called to make ``name``, if every statement that binds it is such a call."""
        called: list[Reference] = []
        for *_, node in self._statements.get(name, ()):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if not isinstance(value, ast.Call):
                return None
            called += scope_of([value.func]).used
        return called

    def nested(self, code: CodeType) -> Definition | None:
        """The function that ``code`` was compiled from, wherever it stands. ``None``: not here, or not surely."""
        node = self._function_node(code)
        if node is None:
            return None
        return Definition("function", syntax_digest([node]), references_of_function(node, code.co_freevars))

    def _note(self, statement: Statement, changed: list[tuple[str, Statement]]) -> None:
        node = statement[-1]
        scope = scope_of([node])
        for name, targets in scope.imports.items():
            self.imports.setdefault(name, []).extend(targets)
        self.stars += scope.stars
        for name in scope.bound:
            self._statements.setdefault(name, []).append(statement)
        if self._has_globals and isinstance(node, Function | ast.ClassDef):
            for inner in ast.walk(node):
                for name in inner.names if isinstance(inner, ast.Global) else ():
                    self.writers.setdefault(name, []).append(node.name)
        changed += ((name, statement) for name in _changed_names(node) if name not in scope.bound)

    def _function_node(self, code: CodeType) -> Function | ast.Lambda | None:
        if self._functions is None:
            functions: dict[str, list[Function | ast.Lambda]] = {}
            for qualname, node in _functions(self._tree):
                functions.setdefault(qualname, []).append(node)
            self._functions = functions
        candidates = self._functions.get(qualname_of(code), [])
        if len(candidates) == 1:
            return candidates[0]
        here = [node for node in candidates if _first_line(node) == code.co_firstlineno]
        if code.co_name == "<lambda>":
            return _lambda_at([node for node in here if isinstance(node, ast.Lambda)], code)
        return (here or candidates or [None])[-1]


def qualname_of(code: CodeType) -> str:
    """The qualified name of a function, the same in every Python."""
    return _MADE_INSIDE.sub("", code.co_qualname)


def _top_statements(tree: ast.Module) -> Iterator[Statement]:
    """Every statement that runs in the scope of the module, with the heads of the blocks around it."""
    stack: list[tuple[Statement, ast.AST]] = [((), node) for node in reversed(tree.body)]
    while stack:
        heads, node = stack.pop()
        if is_without_effect(node):
            continue
        blocks = list(_blocks(node))
        if not blocks:
            yield (*heads, node)
            continue
        head = _head(node)
        yield from ((*heads, *head, part) for part in head)
        for own, block in reversed(blocks):
            stack.extend(((*heads, *head, *own), inner) for inner in reversed(block))


def _blocks(node: ast.AST) -> Iterator[tuple[Statement, list[ast.stmt]]]:
    match node:
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While():
            yield (), node.body
            yield (ast.Not(),), node.orelse
        case ast.With() | ast.AsyncWith():
            yield (), node.body
        case ast.Try() | ast.TryStar():
            yield (), node.body
            for handler in node.handlers:
                yield (ast.ExceptHandler(handler.type, handler.name, []),), handler.body
            yield (), [*node.orelse, *node.finalbody]
        case ast.Match():
            for case in node.cases:
                yield (case.pattern, *filter(None, [case.guard])), case.body
        case _:
            pass


def _head(node: ast.AST) -> Statement:
    match node:
        case ast.If() | ast.While():
            return (node.test,)
        case ast.For() | ast.AsyncFor():
            return node.target, node.iter
        case ast.With() | ast.AsyncWith():
            return tuple(node.items)
        case ast.Match():
            return (node.subject,)
        case _:
            return ()


def _changed_names(node: ast.AST) -> Iterator[str]:
    """Names whose object a statement changes: ``TABLE["a"] = 1``, ``TABLE.update(...)``, ``clean.limit = 3``."""
    targets: list[Any] = []
    match node:
        case ast.Assign():
            targets = list(node.targets)
        case ast.AugAssign() | ast.AnnAssign():
            targets = [node.target]
        case ast.Delete():
            targets = list(node.targets)
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            targets = [method]
        case _:
            pass
    for target in targets:
        base = target
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        if isinstance(base, ast.Name) and base is not target:
            yield base.id


def _what(statements: list[Statement]) -> What:
    kinds = {type(statement[-1]) for statement in statements}
    if ast.ClassDef in kinds:
        return "class"
    values = [getattr(statement[-1], "value", None) for statement in statements]
    named = kinds & {ast.FunctionDef, ast.AsyncFunctionDef} or any(isinstance(value, ast.Lambda) for value in values)
    return "function" if named else "constant"


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function | ast.Lambda]]:
    """Every function of the source with its qualified name, in order."""
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        below, body = prefix, set[int]()
        if isinstance(node, Function | ast.Lambda):
            qualname = prefix + ("<lambda>" if isinstance(node, ast.Lambda) else node.name)
            yield qualname, node
            below, body = f"{qualname}.<locals>.", {id(part) for part in _body(node)}
        elif isinstance(node, ast.ClassDef):
            below, body = f"{prefix}{node.name}.", {id(part) for part in node.body}
        # Decorators and defaults stand outside.
        stack.extend(
            (below if id(inner) in body else prefix, inner) for inner in reversed(list(ast.iter_child_nodes(node)))
        )


def _body(node: Function | ast.Lambda) -> list[ast.stmt] | list[ast.expr]:
    return [node.body] if isinstance(node, ast.Lambda) else node.body


def _first_line(node: Function | ast.Lambda) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _lambda_at(lambdas: list[ast.Lambda], code: CodeType) -> ast.Lambda | None:
    """The innermost lambda that holds every position of ``code``: several may begin on one line."""
    places = [place for place in code.co_positions() if None not in place and place[2:] != (0, 0)]
    starts = [(line or 0, column or 0) for line, _, column, _ in places]
    ends = [(line or 0, column or 0) for _, line, _, column in places]
    around = [
        node
        for node in lambdas
        if starts
        and (node.lineno, node.col_offset) <= min(starts)
        and max(ends) <= (node.end_lineno or 0, node.end_col_offset or 0)
    ]
    return max(around, key=lambda node: (node.lineno, node.col_offset), default=None)
