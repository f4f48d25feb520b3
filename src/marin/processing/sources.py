"""Where documents come from. Syntax alone decides what a text means; nothing is looked up here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias, cast

from marin.errors import ConfigurationError
from marin.execution.fingerprint import absent_means, execution_only

FileFormat: TypeAlias = Literal["jsonl", "json", "parquet", "arrow", "csv", "text"]
"""How a file holds documents. ``text``: one file is one document. ``arrow``: an IPC file or stream."""

FORMAT_BY_SUFFIX: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".txt": "text",
    ".md": "text",
}
COLUMNAR: frozenset[FileFormat] = frozenset({"parquet", "arrow"})
"""Formats of rows and columns, which compress within themselves."""
COMPRESSION_BY_SUFFIX = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
GLOB_CHARACTERS = frozenset("*?[")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Files, folders and globs, of this machine or at URLs, read in the order given, each glob and folder in sorted
    order.

    With a ``split`` the one path is a folder of files of a repository of the hub, of which those of the split and
    ``subset`` are read, chosen as of a ``HubSource``.

    ``by_files``: its author wrote ``files(...)``. Messages need it, identity does not.
    """

    fingerprint_name: ClassVar[str] = "marin.FileSource"

    paths: tuple[str, ...]
    format: FileFormat | None = None
    exclude: tuple[str, ...] = ()
    split: str | None = field(default=None, repr=False, metadata=absent_means(None))
    subset: str | None = field(default=None, repr=False, metadata=absent_means(None))
    by_files: bool = field(default=False, compare=False, repr=False, metadata=execution_only())

    @property
    def text_option(self) -> str:
        """How its author says that each file is one document."""
        return "files(..., format='text')" if self.by_files else "file_format='text'"


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """A data set of the Hugging Face hub. ``revision``: a branch, tag or commit, resolved once when the step runs.

    ``guessed``: its author wrote a bare text, which may be a path after all. Messages need it, identity does not.
    """

    fingerprint_name: ClassVar[str] = "marin.HubSource"

    repository: str
    revision: str = "main"
    subset: str | None = None
    split: str = "train"
    guessed: bool = field(default=False, compare=False, repr=False, metadata=execution_only())


Source: TypeAlias = FileSource | HubSource
PathText: TypeAlias = str | os.PathLike[str]


def files(
    *paths: PathText,
    format: FileFormat | None = None,
    exclude: PathText | Sequence[PathText] = (),
) -> FileSource:
    """Say outright that these are files, folders or globs, whatever their names look like. Each may be a URL.

    ``format`` overrules the suffix; ``"text"`` makes each file one document, whatever it is called.
    Files that match a path or glob of ``exclude``, or lie below it, are left out.

    >>> files("corpus/poems", exclude="corpus/poems/drafts").paths
    ('corpus/poems',)
    """
    if not paths:
        raise ConfigurationError("files(): no path given; write files('data/*.jsonl')")
    check_format("files()", format)
    excluded = (exclude,) if isinstance(exclude, str | os.PathLike) else tuple(exclude)
    return FileSource(
        paths=tuple(_file_path(path) for path in paths),
        format=format,
        exclude=tuple(_file_path(path) for path in excluded),
        by_files=True,
    )


def check_format(name: str, format: object) -> None:
    """Raise ``ConfigurationError`` in the name of ``name`` for what is no format."""
    known = sorted(set(FORMAT_BY_SUFFIX.values()))
    if format is not None and format not in known:
        raise ConfigurationError(f"{name}: format={format!r} is unknown; known are {', '.join(known)}")


def check_texts(name: str, *, may_be_none: bool = False, **given: object) -> None:
    """Raise ``ConfigurationError`` in the name of ``name`` for what is no text, or an empty one."""
    for key, value in given.items():
        if not (value is None and may_be_none) and (not isinstance(value, str) or not value):
            left_out = ", or leave it out" if may_be_none else ""
            raise ConfigurationError(f"{name}: {key}={value!r} is no text, or an empty one: give one{left_out}")


def hf(repository: str, *, revision: str = "main", subset: str | None = None, split: str = "train") -> HubSource:
    """Say outright that this is a data set of the Hugging Face hub.

    >>> hf("roneneldan/TinyStories", split="validation").split
    'validation'
    """
    if not isinstance(cast("object", repository), str) or not _HUB_ID.fullmatch(repository):
        raise ConfigurationError(f"hf({repository!r}): a hub id has the form 'organisation/name'")
    check_texts(f"hf({repository!r})", revision=revision, split=split)
    check_texts(f"hf({repository!r})", subset=subset, may_be_none=True)
    return HubSource(repository=repository, revision=revision, subset=subset, split=split)


def parse_source(source: PathText | Source | Sequence[PathText]) -> Source:
    """What a text means as a source of documents.

    Exactly one ``/``, no scheme, no glob, no leading ``.``, ``/`` or ``~`` and no data suffix is a hub id. All else
    is a path, a folder or a glob. A list holds paths only.

    >>> parse_source("roneneldan/TinyStories")
    HubSource(repository='roneneldan/TinyStories', revision='main', subset=None, split='train')
    >>> parse_source("raw/poems.jsonl")
    FileSource(paths=('raw/poems.jsonl',), format=None, exclude=())
    """
    if isinstance(source, FileSource | HubSource):
        return source
    if isinstance(source, os.PathLike):
        return parse_paths(source)
    if not isinstance(source, str):
        given = cast("object", source)
        if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
            raise ConfigurationError(
                f"source {given!r} is {type(given).__name__}: give a path, a glob, a hub id, a list of paths, or "
                "files(...) or hf(...)"
            )
        return parse_paths(*source)
    if source.startswith("hf://datasets/"):
        return hf(source.removeprefix("hf://datasets/"))
    if is_hub_id(source):
        return replace(hf(source), guessed=True)
    return parse_paths(source)


def parse_paths(*paths: PathText) -> FileSource:
    """What texts mean that are paths, folders or globs for certain, but were not written in ``files(...)``."""
    return replace(files(*paths), by_files=False)


def is_hub_id(text: str) -> bool:
    """Whether ``text`` has the syntax of a hub id, by the rule of ``parse_source``."""
    return bool(_HUB_ID.fullmatch(text)) and split_suffixes(text) == (None, None)


def is_url(path: str) -> bool:
    """Whether ``path`` begins with a scheme."""
    return bool(_SCHEME.match(path))


def split_suffixes(path: str) -> tuple[FileFormat | None, str | None]:
    """The format and the compression that the suffixes of ``path`` name, ``None`` where they name none.

    >>> split_suffixes("a/b.jsonl.gz"), split_suffixes("b.py")
    (('jsonl', 'gzip'), (None, None))
    """
    if is_url(path):
        path = re.split(r"[?#]", path, maxsplit=1)[0]
    stem, suffix = os.path.splitext(path)
    compression = COMPRESSION_BY_SUFFIX.get(suffix.lower())
    if compression is not None:
        suffix = os.path.splitext(stem)[1]
    return FORMAT_BY_SUFFIX.get(suffix.lower()), compression


def _file_path(path: PathText) -> str:
    given = cast("object", path)
    text = cast("object", os.fspath(path)) if isinstance(given, str | os.PathLike) else given
    if not isinstance(text, str):
        several = "" if isinstance(text, int | float) else "; of several, each is an argument: files('a.txt', 'b.txt')"
        raise ConfigurationError(f"a source path is {text!r}, of {type(text).__name__}: give text, or a Path{several}")
    if not text:
        raise ConfigurationError("a source path is empty; write files('data/*.jsonl')")
    if text.startswith("file:///"):
        return text.removeprefix("file://")
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() == "file":
        raise ConfigurationError(f"source {text!r}: write file:/// and the whole path, or the path alone")
    if scheme and scheme[1].lower() == "hf":
        raise ConfigurationError(
            f"source {text!r}: a data set of the hub is written 'organisation/name' or hf(...), and is not a file"
        )
    return text
