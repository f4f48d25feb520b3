"""Which store a run uses, who said so, and how it is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marin.errors import InvalidPrefixError
from marin.storage.format import DEFAULT_FOLDER, has_format
from marin.storage.local import LocalStore

PREFIX_VARIABLE = "MARIN_PREFIX"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")
_FILE_URL = re.compile(r"file:(?://([^/]*))?(.*)", re.IGNORECASE | re.DOTALL)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Where the store lies: ``location`` is absolute and normalised, ``origin`` is who said so.

    ``hint`` is a line for the user when another store was probably meant.
    """

    location: str
    origin: str
    hint: str | None = None


def resolve_prefix(given: str | None, *, environ: Mapping[str, str], cwd: Path) -> Prefix:
    """The prefix: ``given`` (``--prefix``), else ``MARIN_PREFIX``, else ``marin_store`` in ``cwd``.

    Raises ``InvalidPrefixError`` for one that is empty, not a local path, or a file.

    >>> resolve_prefix(None, environ={"MARIN_PREFIX": "file:///data//store/"}, cwd=Path("/home"))
    Prefix(location='/data/store', origin='MARIN_PREFIX', hint=None)
    """
    if given is not None:
        return Prefix(location=_location(given, "--prefix", environ, cwd), origin="--prefix")
    if PREFIX_VARIABLE in environ:
        location = _location(environ[PREFIX_VARIABLE], PREFIX_VARIABLE, environ, cwd)
        return Prefix(location=location, origin=PREFIX_VARIABLE)
    location = _location(DEFAULT_FOLDER, "the default", environ, cwd)
    return Prefix(location=location, origin=f"default ./{DEFAULT_FOLDER}", hint=_hint(location))


def working_folder() -> Path:
    """The folder that relative paths start from. Raises ``InvalidPrefixError`` if it has been deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InvalidPrefixError("the working folder does not exist any more: change to another one") from None


def open_store(location: str, *, durable: bool = True) -> LocalStore:
    """The store at the location of a ``Prefix``. Writes nothing.

    Raises ``StoreFormatError`` if a newer Marin made it, or if its mark is none of ours.
    """
    store = LocalStore(location, durable=durable)
    has_format(store)
    return store


def _location(text: str, origin: str, environ: Mapping[str, str], cwd: Path) -> str:
    fault = f"{origin} is {text!r}"
    if not text.strip() or "\0" in text:
        raise InvalidPrefixError(f"{fault}, which names no folder: give a path such as /data/marin, or leave it out")
    path = _local_path(text, fault)
    if path == "~" or path.startswith("~/"):
        path = environ.get("HOME", "~") + path[1:]
    path = os.path.expanduser(path)
    if path.startswith("~"):
        raise InvalidPrefixError(f"{fault}, but there is no such user: for a folder of this name write './{path}'")
    # One leading slash: POSIX lets two of them mean something else, and normpath keeps them.
    location = "/" + os.path.normpath(os.path.join(os.path.abspath(cwd), path)).lstrip("/")
    _check_place(location, fault)
    return location


def _local_path(text: str, fault: str) -> str:
    if match := _FILE_URL.fullmatch(text):
        host, path = match.groups()
        if host not in (None, "", "localhost") or not path.startswith("/"):
            raise InvalidPrefixError(f"{fault}, which is no local file URL: write file:///, or give the path alone")
        return os.fsdecode(_PERCENT.sub(lambda code: bytes.fromhex(code[1].decode()), os.fsencode(path)))
    if match := _SCHEME.match(text):
        raise InvalidPrefixError(f"{fault}: a store at {match[1]}:// is not supported yet; use a local path")
    return text


def _check_place(location: str, fault: str) -> None:
    """Refuses a place where no folder can be because a file is there, or where a folder above it should be."""
    place = location
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        kind = "a file" if os.path.exists(place) else "a link to something that is not there"
        raise InvalidPrefixError(f"{fault}, but {place} is {kind}, not a folder: choose another path, or move it away")


def _hint(location: str) -> str | None:
    if os.path.isdir(location):
        return None
    here = os.path.dirname(location)
    while (above := os.path.dirname(here)) != here:
        here = above
        other = os.path.join(here, DEFAULT_FOLDER)
        if os.path.isdir(other):
            return f"{other} exists; to use it, run in {here} or set {PREFIX_VARIABLE}={other}"
    return None
