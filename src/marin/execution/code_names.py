"""Which names of its module a piece of code uses, by the scoping rules of Python. Pure: syntax in, names out.

Where in doubt, a name counts as used: better one definition too many is watched than one too few.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """What an import brings: a module, or its ``attribute``. ``level``: the number of dots before the module."""

    module: str
    level: int = 0
    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """A use of a name: of the module around the code, or of what the code itself imports. Then attributes of it.

    >>> sorted(reference.attributes for reference in references([ast.parse("np.mean(helpers.clean(x))")]))
    [(), ('clean',), ('mean',)]
    """

    base: str | ImportTarget
    attributes: tuple[str, ...] = ()


@dataclass(slots=True)
class Scope:
    """What one scope binds and uses. ``inner``: the scopes that are written in it."""

    bound: set[str] = field(default_factory=set[str])
    imports: dict[str, list[ImportTarget]] = field(default_factory=dict[str, list[ImportTarget]])
    stars: list[ImportTarget] = field(default_factory=list[ImportTarget])
    used: set[Reference] = field(default_factory=set[Reference])
    global_names: set[str] = field(default_factory=set[str])
    nonlocal_names: set[str] = field(default_factory=set[str])
    inner: list[ast.AST] = field(default_factory=list[ast.AST])


def references(nodes: Iterable[ast.AST]) -> frozenset[Reference]:
    """The names that code at the top of a module uses, in its functions and classes too."""
    scope = scope_of(nodes)
    found = set(scope.used)
    for inner in scope.inner:
        free, settled = _free(inner)
        found |= free | settled
    return frozenset(found)


def references_of_function(node: Function | ast.Lambda, free_variables: Iterable[str]) -> frozenset[Reference]:
    """The same for one function that is nested in others, which bind its ``free_variables``."""
    hidden = set(free_variables)
    around = scope_of([node])
    free, settled = _free(node)
    return frozenset({found for found in free | around.used if found.base not in hidden} | settled)


def scope_of(nodes: Iterable[ast.AST]) -> Scope:
    """What code binds and uses in the scope in which it stands."""
    scope = Scope()
    stack = list(nodes)
    while stack:
        stack += _enter(stack.pop(), scope)
    return scope


def _enter(node: ast.AST, scope: Scope) -> Iterable[ast.AST]:
    """Note what ``node`` itself binds or uses. Returns what is evaluated in the same scope."""
    match node:
        case ast.Name():
            if isinstance(node.ctx, ast.Load):
                scope.used.add(Reference(node.id))
            else:
                scope.bound.add(node.id)
            return ()
        case ast.Attribute():
            return _chain(node, scope)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            scope.bound.add(node.name)
            scope.inner.append(node)
            return [*node.decorator_list, *_defaults(node.args), *_annotations(node)]
        case ast.Lambda():
            scope.inner.append(node)
            return _defaults(node.args)
        case ast.ClassDef():
            scope.bound.add(node.name)
            scope.inner.append(node)
            return [*node.decorator_list, *node.bases, *node.keywords]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            scope.inner.append(node)
            return (node.generators[0].iter,)
        case ast.AnnAssign():
            return [node.target, *_annotation(node.annotation), *filter(None, [node.value])]
        case _:
            _note_binding(node, scope)
            return ast.iter_child_nodes(node)


def _note_binding(node: ast.AST, scope: Scope) -> None:
    match node:
        case ast.Import():
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                scope.imports.setdefault(alias.asname or module, []).append(ImportTarget(module))
        case ast.ImportFrom():
            for alias in node.names:
                if alias.name == "*":
                    scope.stars.append(ImportTarget(node.module or "", node.level))
                else:
                    target = ImportTarget(node.module or "", node.level, alias.name)
                    scope.imports.setdefault(alias.asname or alias.name, []).append(target)
        case ast.Global():
            scope.global_names.update(node.names)
        case ast.Nonlocal():
            scope.nonlocal_names.update(node.names)
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            scope.bound.update(filter(None, [node.name]))
        case ast.MatchMapping():
            scope.bound.update(filter(None, [node.rest]))
        case _:
            pass


def _chain(node: ast.Attribute, scope: Scope) -> Iterable[ast.AST]:
    """``a.b.c`` is one use, of ``a`` with two attributes."""
    attributes = [node.attr]
    base = node.value
    while isinstance(base, ast.Attribute):
        attributes.append(base.attr)
        base = base.value
    if not isinstance(base, ast.Name):
        return (base,)
    scope.used.add(Reference(base.id, tuple(reversed(attributes))))
    return ()


def _free(node: ast.AST) -> tuple[set[Reference], set[Reference]]:
    """What the scope that ``node`` opens uses from around it; and what nothing around it can hide."""
    scope = _inside(node)
    free, settled = set[Reference](), set[Reference]()
    _sort_out(scope.used | {Reference(name) for name in scope.global_names}, scope, free, settled)
    if isinstance(node, ast.ClassDef):
        settled |= _read_past_class(node)
    for inner in scope.inner:
        below, settled_below = _free(inner)
        settled |= settled_below
        if isinstance(node, ast.ClassDef):  # its names are not seen from its methods
            free |= below
        else:
            _sort_out(below, scope, free, settled)
    return free, settled


def _read_past_class(node: ast.ClassDef) -> set[Reference]:
    """What the body of a class takes from the module although it binds the same name: it reads it before that, or
    for it (``clean = staticmethod(clean)``). And what it imports, which is used as an attribute of the class.
    """
    found, bound = set[Reference](), set[str]()
    for statement in node.body:
        scope = scope_of([statement])
        found |= {use for use in scope.used if isinstance(use.base, str) and use.base not in bound}
        found |= {Reference(target) for targets in scope.imports.values() for target in targets}
        if isinstance(statement, ast.Delete):
            bound -= scope.bound
        elif isinstance(statement, Function | ast.ClassDef | ast.Assign | ast.Import | ast.ImportFrom):
            bound |= scope.bound | scope.imports.keys()
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            bound |= scope.bound
    # A name that the class does not bind is found by the usual rules, in a function around the class too.
    whole = scope_of(node.body)
    return {use for use in found if not isinstance(use.base, str) or use.base in whole.bound | whole.imports.keys()}


def _sort_out(uses: Iterable[Reference], scope: Scope, free: set[Reference], settled: set[Reference]) -> None:
    for use in uses:
        name = use.base
        if not isinstance(name, str) or name in scope.global_names:
            settled.add(use)
        elif name in scope.imports:
            settled.update(Reference(target, use.attributes) for target in scope.imports[name])
        elif name not in scope.bound or name in scope.nonlocal_names:
            free.add(use)


def _inside(node: ast.AST) -> Scope:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            body: list[Any] = node.body if isinstance(node.body, list) else [node.body]
            scope = scope_of(body)
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            scope.bound |= {argument.arg for argument in named if argument is not None}
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            scope = scope_of([node.elt, *_generators(node)])
        case ast.DictComp():
            scope = scope_of([node.key, node.value, *_generators(node)])
        case ast.ClassDef():
            scope = scope_of(node.body)
        case _:
            raise AssertionError(f"{type(node).__name__} opens no scope")
    scope.bound |= {parameter.name for parameter in getattr(node, "type_params", ())}
    return scope


def _generators(node: Comprehension) -> Iterator[ast.AST]:
    for position, generator in enumerate(node.generators):
        yield generator.target
        yield from generator.ifs
        if position > 0:  # the first is evaluated outside
            yield generator.iter


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]


def _annotations(node: Function) -> Iterator[ast.AST]:
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None and argument.annotation is not None:
            yield from _annotation(argument.annotation)
    if node.returns is not None:
        yield from _annotation(node.returns)


def _annotation(node: ast.expr) -> Iterator[ast.AST]:
    """An annotation, and each part of it that is written as text. The class of a config counts: its methods are called.

    The texts of ``Literal`` are values, and those that ``Annotated`` adds may be anything.
    """
    yield node
    stack: list[ast.AST] = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            with contextlib.suppress(SyntaxError, ValueError, RecursionError):
                inner = ast.parse(part.value.strip(), mode="eval").body
                if not isinstance(inner, ast.Constant):
                    yield from _annotation(inner)
        elif isinstance(part, ast.Subscript) and _last_name(part.value) == "Literal":
            continue
        elif isinstance(part, ast.Subscript) and _last_name(part.value) == "Annotated":
            stack += part.slice.elts[:1] if isinstance(part.slice, ast.Tuple) else [part.slice]
        else:
            stack += ast.iter_child_nodes(part)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
