"""Where documents come from. Syntax alone decides what a text means; nothing is looked up here."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias

from marin.errors import ConfigurationError
from marin.execution.fingerprint import execution_only

FileFormat: TypeAlias = Literal["jsonl", "json", "parquet", "text"]
"""How a file holds documents. ``text``: one file is one document."""

FORMAT_BY_SUFFIX: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".txt": "text",
    ".md": "text",
}
COMPRESSION_BY_SUFFIX = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
GLOB_CHARACTERS = frozenset("*?[")

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Files, folders and globs of this machine, read in the order given, each glob and folder in sorted order."""

    fingerprint_name: ClassVar[str] = "marin.FileSource"

    paths: tuple[str, ...]
    format: FileFormat | None = None
    exclude: tuple[str, ...] = ()


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
    """Say outright that these are files, folders or globs, whatever their names look like.

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
    )


def check_format(name: str, format: object) -> None:
    """Raise ``ConfigurationError`` in the name of ``name`` for what is no format."""
    known = sorted(set(FORMAT_BY_SUFFIX.values()))
    if format is not None and format not in known:
        raise ConfigurationError(f"{name}: format={format!r} is unknown; known are {', '.join(known)}")


def hf(repository: str, *, revision: str = "main", subset: str | None = None, split: str = "train") -> HubSource:
    """Say outright that this is a data set of the Hugging Face hub.

    >>> hf("roneneldan/TinyStories", split="validation").split
    'validation'
    """
    if not _HUB_ID.fullmatch(repository):
        raise ConfigurationError(f"hf({repository!r}): a hub id has the form 'organisation/name'")
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
        return files(source)
    if not isinstance(source, str):
        return files(*source)
    if source.startswith("hf://datasets/"):
        return hf(source.removeprefix("hf://datasets/"))
    if is_hub_id(source):
        return replace(hf(source), guessed=True)
    return files(source)


def is_hub_id(text: str) -> bool:
    """Whether ``text`` has the syntax of a hub id, by the rule of ``parse_source``."""
    return bool(_HUB_ID.fullmatch(text)) and split_suffixes(text) == (None, None)


def split_suffixes(path: str) -> tuple[FileFormat | None, str | None]:
    """The format and the compression that the suffixes of ``path`` name, ``None`` where they name none.

    >>> split_suffixes("a/b.jsonl.gz"), split_suffixes("b.py")
    (('jsonl', 'gzip'), (None, None))
    """
    stem, suffix = os.path.splitext(path)
    compression = COMPRESSION_BY_SUFFIX.get(suffix.lower())
    if compression is not None:
        suffix = os.path.splitext(stem)[1]
    return FORMAT_BY_SUFFIX.get(suffix.lower()), compression


def _file_path(path: PathText) -> str:
    text = os.fspath(path)
    if not text:
        raise ConfigurationError("a source path is empty; write files('data/*.jsonl')")
    if text.startswith("file:///"):
        return text.removeprefix("file://")
    if scheme := _SCHEME.match(text):
        raise ConfigurationError(
            f"source {text!r}: reading {scheme[1]}:// is not supported yet; download the files and give their path"
        )
    return text
