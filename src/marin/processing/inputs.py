"""The input files of a step: those of this machine, or those of the hub, downloaded for as long as they are read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Generator
from dataclasses import dataclass, replace

from marin.errors import ConfigurationError
from marin.execution.redaction import shown_place
from marin.processing.input_files import InputFile, files_below, input_files
from marin.processing.near import near_names
from marin.processing.sources import FileFormat, FileSource, HubSource, Source, is_url, split_suffixes

DOWNLOADS = "downloads"
_SPLIT_WORDS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
_FORMAT_PREFERENCE = ("parquet", "arrow", "jsonl", "json", "csv", "text")
_NOT_DATA = re.compile(r"(^|/)(\.|README|LICENSE|dataset_infos?\.json)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Files to read. ``description`` names the source in messages and records, with the commit of one from the hub."""

    files: tuple[InputFile, ...]
    description: str


def check_not_local(*sources: Source | None) -> None:
    """Raise ``ConfigurationError`` for a bare text that was taken for a hub id and names something here.

    Looks at the disk only, so that it can be asked before anything else.
    """
    for source in sources:
        if isinstance(source, HubSource) and source.guessed and os.path.exists(source.repository):
            name, kind = source.repository, "folder" if os.path.isdir(source.repository) else "file"
            raise ConfigurationError(
                f"source {name!r} has the form of a hub id, but a {kind} of that name lies at "
                f"{os.path.abspath(name)}: write './{name}' or files({name!r}); "
                f"for the data set of the hub write hf({name!r})"
            )


@contextlib.contextmanager
def open_inputs(source: Source, *, scratch: str) -> Generator[Inputs, None, None]:
    """The files of ``source``, in reading order. Those of the hub lie below ``scratch`` until the block ends.

    A branch or tag of the hub is resolved once; a later attempt with the same ``scratch`` goes on with that commit and
    the files that it finds there.
    """
    if isinstance(source, FileSource):
        paths = [
            shown_place(path) if is_url(path) else os.path.abspath(os.path.expanduser(path)) for path in source.paths
        ]
        yield Inputs(files=tuple(input_files(_with_its_split(source))), description=", ".join(paths))
        return
    folder = os.path.join(scratch, DOWNLOADS, hashlib.sha256(repr(source).encode()).hexdigest()[:16])
    yield _download(source, folder)
    # Kept when the block raises: the next attempt goes on with them.
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # another source may still have its files there
        os.rmdir(os.path.join(scratch, DOWNLOADS))


def choose_files(names: list[str], source: HubSource) -> list[str]:
    """The data files of one split among the files of a repository, sorted: of one format, Parquet first.

    A file belongs to a split if a folder or a word of its name is the split's; files without such a word are ``train``.

    >>> choose_files(["README.md", "data/train-0.parquet", "data/test-0.parquet"], HubSource(repository="a/b"))
    ['data/train-0.parquet']
    """
    data, chosen = _of_split(names, source.split, source.subset)
    if chosen:
        return chosen
    raise ConfigurationError(
        f"{source.repository} {_none_of(data, source.split, source.subset)}. "
        "Choose with hf(..., subset=, split=), or download them and give their path"
    )


def _with_its_split(source: FileSource) -> FileSource:
    """``source`` with the files of its split, where it has one, in place of their folder."""
    if source.split is None:
        return source
    [folder] = source.paths
    names = [os.path.relpath(path, folder).replace(os.sep, "/") for path in files_below(folder)]
    data, chosen = _of_split(names, source.split, source.subset, source.format)
    if chosen:
        return replace(source, paths=tuple(os.path.join(folder, name) for name in chosen))
    raise ConfigurationError(
        f"{shown_place(folder)} {_none_of(data, source.split, source.subset)}. Choose with split= and subset=, or with "
        "glob='data/*.jsonl'"
    )


def _of_split(
    names: list[str], split: str, subset: str | None, format: FileFormat | None = None
) -> tuple[list[str], list[str]]:
    """The data files among ``names``, and those to read. ``format``: what all of them are, whatever they are called."""
    inside = [name for name in names if not _NOT_DATA.search(name)]
    if subset is not None:
        inside = [name for name in inside if subset in name.split("/")[:-1]]
    data = sorted(name for name in inside if format is not None or split_suffixes(name)[0] is not None)
    ours = [name for name in data if _split_of(name) == split]
    if format is not None:
        return data, ours
    found = [[name for name in ours if split_suffixes(name)[0] == each] for each in _FORMAT_PREFERENCE]
    return data, next((names for names in found if names), [])


def _none_of(data: list[str], split: str, subset: str | None) -> str:
    shown = ", ".join(data[:10]) or "none"
    return f"has no data file of split {split!r}{f' and subset {subset!r}' if subset else ''}; its data files: {shown}"


def _split_of(name: str) -> str:
    words = re.split(r"[^a-z]+", name.lower())
    return next((split for split, known in _SPLIT_WORDS.items() if any(word in known for word in words)), "train")


def _download(source: HubSource, folder: str) -> Inputs:
    # Only here: the hub's client takes a tenth of a second, in each process, and most sources are files.
    from marin.processing.download_hub import fetch_all  # noqa: PLC0415
    from marin.processing.hub import PARTIALS, list_files, open_repository  # noqa: PLC0415

    memory = os.path.join(folder, "commit.json")
    repository = open_repository(source.repository, "dataset", source.revision, memory=memory, called=_called(source))
    present = {file.name: file for file in list_files(repository)}
    names = choose_files(list(present), source)
    root = os.path.join(folder, "files")
    os.makedirs(root, exist_ok=True)
    fetch_all(repository, [present[name] for name in names], root, os.path.join(folder, PARTIALS))
    found = list[InputFile]()
    for name in names:
        [file] = input_files(FileSource(paths=(os.path.join(root, name),)))
        found.append(replace(file, name=f"{repository.url}/{name}"))
    return Inputs(files=tuple(found), description=repository.url)


def _called(source: HubSource) -> str | None:
    """What a message about a source says first: of a bare text, that it may have been meant as a path."""
    name = source.repository
    if not source.guessed:
        return None
    parent, last = name.split("/")
    near = near_names(parent, last)
    here = f" ({os.path.abspath(parent)} has {near})" if near else ""
    return f"source {name!r}: a path is written './{name}' or files({name!r}){here}; as a hub id, dataset {name!r}"
