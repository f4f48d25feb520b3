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
from marin.execution.progress import report
from marin.processing.hub import fetch, list_files, open_repository
from marin.processing.input_files import InputFile, input_files
from marin.processing.near import near_names
from marin.processing.sources import FileSource, HubSource, Source, split_suffixes

DOWNLOADS = "downloads"
_SPLIT_WORDS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
_FORMAT_PREFERENCE = ("parquet", "jsonl", "json", "text")
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
        paths = [os.path.abspath(os.path.expanduser(path)) for path in source.paths]
        yield Inputs(files=tuple(input_files(source)), description=", ".join(paths))
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
    inside = [name for name in names if not _NOT_DATA.search(name)]
    if source.subset is not None:
        inside = [name for name in inside if source.subset in name.split("/")[:-1]]
    data = [name for name in inside if split_suffixes(name)[0] is not None]
    for format in _FORMAT_PREFERENCE:
        if chosen := [name for name in data if split_suffixes(name)[0] == format and _split_of(name) == source.split]:
            return sorted(chosen)
    shown = ", ".join(sorted(data)[:10]) or "none"
    raise ConfigurationError(
        f"{source.repository} has no data file of split {source.split!r}"
        f"{f' and subset {source.subset!r}' if source.subset else ''}; its data files: {shown}. "
        "Choose with hf(..., subset=, split=), or download them and give their path"
    )


def _split_of(name: str) -> str:
    words = re.split(r"[^a-z]+", name.lower())
    return next((split for split, known in _SPLIT_WORDS.items() if any(word in known for word in words)), "train")


def _download(source: HubSource, folder: str) -> Inputs:
    memory = os.path.join(folder, "commit.json")
    repository = open_repository(source.repository, "dataset", source.revision, memory=memory, called=_called(source))
    present = {file.name: file for file in list_files(repository)}
    names = choose_files(list(present), source)
    found = list[InputFile]()
    for number, name in enumerate(names):
        report(number, len(names), "files", f"downloading {name}")
        path = fetch(repository, present[name], os.path.join(folder, "files"))
        [file] = input_files(FileSource(paths=(path,)))
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
