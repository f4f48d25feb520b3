"""Walks from where the code of a step begins to every definition of the author's own code that it reaches by name."""

from __future__ import annotations

import ast
import builtins
import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from marin.execution.code_entry import CodeEntry, Entry
from marin.execution.code_handles import has_handle, is_only_handles, without_builds
from marin.execution.code_module import Definition, ModuleSyntax, qualname_of
from marin.execution.code_names import ImportTarget, Reference, scope_of
from marin.execution.code_source import (
    Origin,
    Place,
    SourceModule,
    cells_of,
    find_place,
    loaded_namespace,
    place_of_namespace,
    read_syntax,
)
from marin.execution.naming import module_name


@dataclass
class Reach:
    """What was found: definitions by module, the installed packages at their edge, and what has no source."""

    definitions: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    files: dict[str, str] = field(default_factory=dict[str, str])
    packages: set[str] = field(default_factory=set[str])
    unknown: dict[str, str] = field(default_factory=dict[str, str])


class Sources:
    """The modules that were looked up, each once. Files are read as they are when they are first needed."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._modules: dict[str, SourceModule | str] = {}

    def place(self, name: str) -> Place:
        """Where the module called ``name`` comes from."""
        own = module_name(name)
        found = self._places.get(own)
        if found is None and own != name and (loaded := loaded_namespace(name)) is not None:
            return self.of_namespace(loaded)  # the script, which others may not find under its own name
        if found is None:
            parent = own.rpartition(".")[0]
            found = self._places[own] = find_place(own, self.place(parent) if parent else None)
        return found

    def of_namespace(self, namespace: Mapping[str, Any]) -> Place:
        """The same for a module that is loaded, whatever ``sys.modules`` has under its name."""
        place = place_of_namespace(namespace)
        return self._places.setdefault(place.name, place)

    def module(self, place: Place, namespace: Mapping[str, Any] | None = None) -> SourceModule | str:
        """The source of a module, or why there is none."""
        known = self._modules.get(place.name)
        if known is None:
            known = self._modules[place.name] = self._read(place, namespace)
        return known

    def cells(self, file: str, namespace: Mapping[str, Any]) -> SourceModule | str:
        """The notebook or prompt that ``file`` is a cell of, or why it has no source."""
        name = module_name(str(namespace.get("__name__", "")))
        known = self._modules.get(name)
        if not isinstance(known, SourceModule) or file not in known.units:
            units = cells_of(file, namespace)
            if file not in units:
                return "its source was not kept: it was typed in, or made by exec"
            known = SourceModule(Place(name, Origin.SOURCE), units, namespace, package="")
            self._modules[name] = known
            self._places[name] = known.place
        return known

    def _read(self, place: Place, namespace: Mapping[str, Any] | None) -> SourceModule | str:
        loaded = namespace if namespace is not None else loaded_namespace(place.name) or {}
        package = place.name if place.folders else place.name.rpartition(".")[0]
        if place.file is None:  # a namespace package
            return SourceModule(place, {}, {}, package=package)
        syntax = read_syntax(place.file)
        if isinstance(syntax, str):
            return syntax
        return SourceModule(place, {place.file: syntax}, loaded, package=package)


class Walk:
    """One walk. Every definition is visited once."""

    def __init__(self, sources: Sources) -> None:
        self.reach = Reach()
        self._sources = sources
        self._seen = set[tuple[str, str, tuple[str, ...]]]()
        self._todo: list[tuple[SourceModule, Reference]] = []

    def begin(self, entry: Entry) -> None:
        """Go from ``entry`` as far as names lead."""
        if isinstance(entry, CodeEntry):
            self._begin_at_code(entry.code, entry.namespace)
        else:
            self._path(entry.module, tuple(entry.qualname.split(".")) if entry.qualname else (), needed=True)
        while self._todo:
            module, reference = self._todo.pop()
            if isinstance(reference.base, str):
                self._name(module, reference.base, reference.attributes)
            else:
                self._import(module, reference.base, reference.attributes, None)

    def _begin_at_code(self, code: CodeType, namespace: Mapping[str, Any]) -> None:
        place = self._sources.of_namespace(namespace)
        if place.origin in (Origin.INSTALLED, Origin.STANDARD):
            self._note_package(place)
            return
        qualname = qualname_of(code)
        label = f"{place.name}.{qualname}"
        if place.file is None:
            module = self._sources.cells(code.co_filename, namespace)
        elif place.origin is Origin.OPAQUE or _is_other_file(code.co_filename, place.file):
            module = f"not from {place.shown_file}: made by exec or eval, or compiled"
        else:
            module = self._sources.module(place, namespace)
        if isinstance(module, str):
            self.reach.unknown[label] = module
            return
        top, *inner = qualname.split(".")
        if "<" not in qualname and module.unit(top) is not None:
            self._name(module, top, tuple(inner))
            return
        unit = module.units.get(code.co_filename) or next(iter(module.units.values()))
        definition = unit.nested(code)
        if definition is None:
            self.reach.unknown[label] = f"not found in {module.file}: edited since it was imported?"
        else:
            self._found(module, self._free_name(module, qualname.replace(".<locals>", ""), definition), definition)

    def _name(self, module: SourceModule, name: str, attributes: tuple[str, ...]) -> None:
        """What ``module`` has as ``name``."""
        if (key := (module.name, name, attributes)) in self._seen:
            return
        self._seen.add(key)
        unit = module.unit(name)
        if unit is None:
            self._from_elsewhere(module, name, attributes)
            return
        if (reason := module.lost(name)) is not None:
            self.reach.unknown[f"{module.name}.{name}"] = reason
            return
        if (definition := _definition(module, unit, name)) is not None:
            self._found(module, name, definition)
        for target in unit.imports.get(name, ()):
            self._import(module, target, attributes, name)
        self._todo += ((module, Reference(writer)) for writer in unit.writers.get(name, ()))

    def _found(self, module: SourceModule, name: str, definition: Definition) -> None:
        known = self.reach.definitions.setdefault(module.name, {})
        if name not in known:
            known[name] = str(definition)
            self.reach.files[module.name] = module.file
            self._todo += ((module, reference) for reference in definition.references)

    def _free_name(self, module: SourceModule, name: str, definition: Definition) -> str:
        """Nested functions may share a name, and lambdas do: the next one gets a number."""
        known = self.reach.definitions.get(module.name, {})
        names = (name if number == 1 else f"{name} {number}" for number in itertools.count(1))
        return next(each for each in names if known.get(each, str(definition)) == str(definition))

    def _import(
        self, module: SourceModule, target: ImportTarget, attributes: tuple[str, ...], bound: str | None
    ) -> None:
        name = _absolute(module.package, target)
        if name is None:
            return
        needed = target.level > 0 or name.partition(".")[0] == module.name.partition(".")[0]
        if target.attribute is None:
            self._path(name, attributes, needed=needed)
        elif name == module.name and target.attribute == bound:  # a package imports one of its own modules
            self._path(f"{name}.{bound}", attributes, needed=needed)
        else:
            self._path(name, (target.attribute, *attributes), needed=needed)

    def _path(self, name: str, attributes: tuple[str, ...], *, needed: bool) -> None:
        """What the module called ``name`` has under a path of attributes; all that it has, if the path is empty."""
        while True:
            module = self._source(name, needed=needed)
            if module is None:
                return
            if not attributes:
                self._todo += ((module, Reference(each)) for unit in module.units.values() for each in unit.names)
                return
            first, *rest = attributes
            below = f"{name}.{first}"
            is_module = module.unit(first) is None and bool(module.place.folders)
            if not is_module or self._sources.place(below).origin is Origin.MISSING:
                if module.unit(first) is None and not module.is_open and not first.startswith("__"):
                    self.reach.unknown[below] = f"not found in {module.file}"
                self._name(module, first, tuple(rest))
                return
            name, attributes = below, tuple(rest)

    def _source(self, name: str, *, needed: bool) -> SourceModule | None:
        """The module's source, if it is the author's own; what it is instead is noted."""
        place = self._sources.place(name)
        if place.origin is Origin.SOURCE:
            module = self._sources.module(place)
            if isinstance(module, SourceModule):
                return module
            self.reach.unknown[place.name] = module
        elif place.origin is Origin.OPAQUE:
            self.reach.unknown[place.name] = f"{os.path.basename(place.file or name)} has no source"
        elif place.origin is Origin.MISSING and needed:
            self.reach.unknown[place.name] = "not found"
        else:
            self._note_package(place)
        return None

    def _note_package(self, place: Place) -> None:
        if place.origin is Origin.INSTALLED:
            self.reach.packages.add(place.name.partition(".")[0])

    def _from_elsewhere(self, module: SourceModule, name: str, attributes: tuple[str, ...]) -> None:
        """A name that the module itself does not bind: a star import brings it, or ``__getattr__`` makes it."""
        if not module.stars and hasattr(builtins, name):
            return
        for target in module.stars:
            if (star := _absolute(module.package, target)) is not None and star != module.name:
                self._path(star, (name, *attributes), needed=False)
        if module.unit("__getattr__") is not None:
            self._name(module, "__getattr__", ())


def reach_of(sources: Sources, entries: Iterable[Entry]) -> Reach:
    """Everything that code which begins at ``entries`` reaches by name."""
    walk = Walk(sources)
    for entry in entries:
        walk.begin(entry)
    for definitions in walk.reach.definitions.values():
        # What is nested in a function that counts as a whole: only a loaded decorator leads there.
        for name in [name for name in definitions if "." in name and name.partition(".")[0] in definitions]:
            del definitions[name]
    return walk.reach


def _absolute(package: str, target: ImportTarget) -> str | None:
    """The full name of the module that an import names. ``None``: more dots than packages."""
    if target.level == 0:
        return target.module or None
    above = package.split(".") if package else []
    if target.level > len(above):
        return None
    return ".".join([*above[: len(above) - target.level + 1], *filter(None, [target.module])])


def _is_other_file(one: str, other: str) -> bool:
    return one != other and os.path.realpath(one) != os.path.realpath(other)


def _definition(module: SourceModule, unit: ModuleSyntax, name: str) -> Definition | None:
    """What ``name`` is. Calls that make handles do not count: as its value is now, or by what they call."""
    is_loaded = name in module.namespace
    value = module.namespace.get(name)
    calls = None if is_loaded else unit.calls(name)
    if is_only_handles(value) or (calls and all(_makes_handle(unit, call) for call in calls)):
        return unit.definition(name, holds_handle=True)
    if not has_handle(value) if is_loaded else not _imports_marin(unit):
        return unit.definition(name)

    def is_build(call: ast.Call) -> bool:
        return any(_makes_handle(unit, use) for use in scope_of([call.func]).used)

    def without(node: ast.AST) -> ast.AST:
        is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        return node if is_definition else without_builds(node, value, is_build)

    return unit.definition(name, without=without)


def _makes_handle(unit: ModuleSyntax, call: Reference) -> bool:
    for target in unit.imports.get(call.base, ()) if isinstance(call.base, str) else ():
        path = [target.attribute, *call.attributes]
        if target.module.startswith("marin.experiment") or (
            target.module.startswith("marin.execution") and {"ArtifactStep", "apply"}.intersection(path)
        ):
            return True
    return False


def _imports_marin(unit: ModuleSyntax) -> bool:
    return any(target.module.startswith("marin.") for targets in unit.imports.values() for target in targets)
