"""Where the source of a module lies, whose it is, and its syntax. Imports nothing that it is asked about.

Code counts as the author's own unless it lies in an installed distribution or in the standard library; a package that
is installed as editable is source. Marin itself counts as installed, however it is.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import linecache
import os
import re
import stat
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from types import FunctionType
from typing import Any

from marin.execution.code_module import ModuleSyntax
from marin.execution.code_names import ImportTarget
from marin.execution.naming import MAX_WRAPPERS, module_name

MOST_SOURCE_BYTES = 1 << 20
"""Larger files are data in the form of Python; to parse one takes seconds."""

CELL = "a cell"
"""How the file of a notebook's or prompt's cell is called."""

_MAGIC = re.compile(
    r"get_ipython\(\)\.(?:run_cell_magic\('(?:time|capture|prun)', '[^'\n]*',|run_line_magic\('(?:time|prun)',)"
    r" (?P<body>'.*')\)"
)
"""How IPython writes a cell of these magics, which run what follows them, as Python."""

_INSTALLED_FOLDERS = {"site-packages", "dist-packages"}
_STANDARD_FOLDER = os.path.dirname(os.__file__) + os.sep
_OURS = "marin"

_parsing = threading.Lock()
_parsed: dict[str, tuple[bytes, ModuleSyntax | str]] = {}


class Origin(Enum):
    """Whose a module is."""

    SOURCE = "source"
    INSTALLED = "installed"
    STANDARD = "standard"
    OPAQUE = "opaque"
    """The author's own, but there is no source that could be read."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a module comes from. ``folders``: where the modules below it lie; only a package has any."""

    name: str
    origin: Origin
    file: str | None = None
    folders: tuple[str, ...] = ()

    @property
    def shown_file(self) -> str:
        """The file from the folder that the module is imported from: the same wherever the project lies."""
        parts = PurePath(self.file or "").parts
        own = self.name.count(".") + (2 if parts and parts[-1] == "__init__.py" else 1)
        return "/".join(parts[-own:])


class SourceModule:
    """A module whose source can be read: one file, or the cells of a notebook in the order in which they ran."""

    def __init__(
        self, place: Place, units: Mapping[str, ModuleSyntax], namespace: Mapping[str, Any], *, package: str
    ) -> None:
        self.name = place.name
        self.file = place.shown_file if place.file is not None else CELL
        self.place = place
        self.package = package
        self.namespace = namespace
        """What the module holds now; empty if it is not loaded."""
        self.units = units

    @property
    def stars(self) -> list[ImportTarget]:
        """What is imported as a whole."""
        return [target for unit in self.units.values() for target in unit.stars]

    @property
    def is_open(self) -> bool:
        """Whether it may have names that are not written in it."""
        return bool(self.stars) or self.unit("__getattr__") is not None

    def unit(self, name: str) -> ModuleSyntax | None:
        """The text that binds ``name``: of several cells the one that its function comes from, else the last."""
        binding = {file: unit for file, unit in self.units.items() if unit.binds(name)}
        if len(binding) > 1 and (live := binding.get(_file_of(self.namespace.get(name)))):
            return live
        return next(reversed(binding.values()), None)

    def lost(self, name: str) -> str | None:
        """Why none of the cells says what ``name`` is now: its function or class is from a text that nobody kept."""
        if self.place.file is not None:
            return None
        value = self.namespace.get(name)
        written = [value] if not isinstance(value, type) else list(vars(value).values())
        for function in map(_unwrapped, written):
            if not isinstance(function, FunctionType) or function.__globals__ is not self.namespace:
                continue
            code = function.__code__
            made = isinstance(value, type) and (
                code.co_filename == "<string>" or code.co_qualname != f"{value.__qualname__}.{code.co_name}"
            )
            if not made and code.co_filename not in self.units:
                return f"its source was not kept: it comes from {code.co_filename}"
        return None


def place_of_namespace(namespace: Mapping[str, Any]) -> Place:
    """Where the module comes from that has these globals."""
    name = module_name(str(namespace.get("__name__", "")))
    spec = namespace.get("__spec__")
    file = namespace.get("__file__")
    if getattr(spec, "has_location", False) or file is None:
        file = getattr(spec, "origin", None) or file
    folders = tuple(_folders(namespace.get("__path__", ())))
    return _classified(name, file if isinstance(file, str) else None, folders)


def find_place(name: str, parent: Place | None) -> Place:
    """Where the module called ``name`` comes from, below ``parent`` if it is not at the top. Never raises."""
    if (namespace := loaded_namespace(name)) is not None:
        return place_of_namespace(namespace)
    if parent is not None:
        return _below(parent, name)
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # noqa: BLE001  # a finder of somebody else's; whatever it raises, the module is not found
        spec = None
    if spec is None:
        return Place(name, Origin.MISSING)
    return _classified(name, spec.origin, tuple(_folders(spec.submodule_search_locations or ())))


def loaded_namespace(name: str) -> Mapping[str, Any] | None:
    """The globals of a module that is loaded. A module that loads itself at first use is left as it is."""
    module = sys.modules.get(name)
    try:
        namespace = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return None
    return namespace if isinstance(namespace, dict) else None


def read_syntax(file: str) -> ModuleSyntax | str:
    """The syntax of a source file as it is now, or why there is none. Parsed once for each content."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return f"{os.path.basename(file)} is no file"
        with open(file, "rb") as opened:
            source = opened.read(MOST_SOURCE_BYTES + 1)
    except OSError as fault:
        return f"{os.path.basename(file)} can't be read: {fault.strerror}"
    except ValueError:
        return f"{file!r} is no path"
    if len(source) > MOST_SOURCE_BYTES:
        return f"{os.path.basename(file)} is larger than {MOST_SOURCE_BYTES >> 20} MiB"
    return _parse(file, source)


def cells_of(file: str, namespace: Mapping[str, Any]) -> dict[str, ModuleSyntax]:
    """The cells that ran in the notebook or prompt that ``file`` is a cell of, in order; those that are no Python left
    out. Empty: nobody kept the source."""
    own = "".join(linecache.getlines(file))
    if not own or file in ("<string>", "<stdin>"):  # names that many texts share
        return {}
    cache: dict[Any, Any] = linecache.cache  # newer Pythons keep more in it than files by name
    kept = {name: entry for name, entry in list(cache.items()) if isinstance(name, str) and len(entry) == 4}
    cells = [name for name in kept if _kin(name) == _kin(file) and not os.path.exists(name)]
    texts = {name: "".join(kept[name][2]) for name in cells}
    texts.setdefault(file, own)
    # A cell that is run again keeps its place in linecache; IPython's history knows better.
    history = namespace.get("In")
    ran = {str(text).rstrip(): at for at, text in enumerate(history)} if isinstance(history, list) else {}
    ordered = sorted(texts, key=lambda name: ran.get(texts[name].rstrip(), -1))
    units = {name: _parse(name, _plain(texts[name]).encode(errors="surrogatepass")) for name in ordered}
    return {name: unit for name, unit in units.items() if isinstance(unit, ModuleSyntax)}


def _plain(text: str) -> str:
    """The Python that a cell such as ``%%time`` runs in the notebook's own names."""
    found = _MAGIC.fullmatch(text.strip())
    if found is None:
        return text
    try:
        return str(ast.literal_eval(found["body"]))
    except (SyntaxError, ValueError):
        return text


def _kin(file: str) -> str:
    """What the cells of one notebook have in common in their names."""
    return file.partition("-input-")[0] if file.startswith("<") else os.path.dirname(file)


def _unwrapped(value: Any) -> Any:
    for _ in range(MAX_WRAPPERS):
        if (inner := getattr(value, "__wrapped__", None)) is None:
            break
        value = inner
    return value


def _file_of(value: Any) -> str:
    value = _unwrapped(value)
    return value.__code__.co_filename if isinstance(value, FunctionType) else ""


def _parse(file: str, source: bytes) -> ModuleSyntax | str:
    content = hashlib.sha256(source).digest()
    known = _parsed.get(file)
    if known is not None and known[0] == content:
        return known[1]
    syntax: ModuleSyntax | str
    try:
        with _parsing, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import has told them
            syntax = ModuleSyntax(ast.parse(source), has_globals=b"global" in source)
    except (SyntaxError, ValueError) as fault:
        line = f", line {fault.lineno}" if isinstance(fault, SyntaxError) and fault.lineno else ""
        syntax = f"{os.path.basename(file)}{line} is not Python {sys.version_info[0]}.{sys.version_info[1]}"
    except (RecursionError, MemoryError):
        syntax = f"{os.path.basename(file)} is nested too deeply"
    _parsed[file] = (content, syntax)
    return syntax


def _classified(name: str, file: str | None, folders: tuple[str, ...]) -> Place:
    top = name.partition(".")[0]
    if top == _OURS:
        return Place(name, Origin.INSTALLED)
    where = file if file is not None else next(iter(folders), "")
    if _INSTALLED_FOLDERS.intersection(PurePath(where).parts):
        return Place(name, Origin.INSTALLED, file, folders)
    if where in ("built-in", "frozen") or where.startswith(_STANDARD_FOLDER):
        return Place(name, Origin.STANDARD)
    if file is None and folders:  # a namespace package: nothing but a folder
        return Place(name, Origin.SOURCE, None, folders)
    if file is None:
        standard = top in sys.stdlib_module_names or top == "builtins"
        return Place(name, Origin.STANDARD if standard else Origin.OPAQUE)
    opaque = file.endswith((*importlib.machinery.EXTENSION_SUFFIXES, ".pyc"))
    return Place(name, Origin.OPAQUE if opaque else Origin.SOURCE, file, folders)


def _below(parent: Place, name: str) -> Place:
    if parent.origin in (Origin.INSTALLED, Origin.STANDARD):
        return Place(name, parent.origin)
    own = name.rpartition(".")[2]
    namespace: list[str] = []
    for folder in parent.folders:
        inner = os.path.join(folder, own)
        if os.path.isfile(init := os.path.join(inner, "__init__.py")):
            return _classified(name, init, (inner,))
        if os.path.lexists(file := f"{inner}.py"):
            return _classified(name, file, ())
        if binary := _binary(folder, own):
            return _classified(name, binary, ())
        if os.path.isdir(inner):
            namespace.append(inner)
    return _classified(name, None, tuple(namespace)) if namespace else Place(name, Origin.MISSING)


def _binary(folder: str, name: str) -> str | None:
    for suffix in (*importlib.machinery.EXTENSION_SUFFIXES, ".pyc"):
        if os.path.isfile(file := os.path.join(folder, name + suffix)):
            return file
    return None


def _folders(path: Any) -> list[str]:
    """A package's path. That of a namespace package asks its parent, which may not be loaded."""
    try:
        return [str(folder) for folder in path]
    except KeyError:
        return [str(folder) for folder in getattr(path, "_path", ())]
