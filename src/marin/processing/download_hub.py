"""The step that downloads files of one commit from the Hugging Face hub."""

from __future__ import annotations

import difflib
import fnmatch
import logging
import os
import shutil
from collections.abc import Sequence

import msgspec

from marin.errors import DataError, HubUnreachableError
from marin.processing.download import DownloadedFile, HubDownload, HubDownloadConfig
from marin.processing.durable import read_remembered, write_whole
from marin.processing.hub import (
    PARTIALS,
    HubClient,
    HubFile,
    Repository,
    checked_name,
    fetch,
    has_content,
    is_offline,
    list_files,
    open_repository,
)
from marin.processing.input_files import file_sha256
from marin.processing.transfer import Tally, alone_in, arrived_bytes, check_room, partial_path, together

_LOG = logging.getLogger(__name__)
_SHOWN = 5


def download(config: HubDownloadConfig, *, client: HubClient | None = None) -> HubDownload:
    """Fetch the files, or those that an earlier attempt did not; each has the hub's digest when it appears.

    Raises ``DataError`` if the repository can't be read, nothing matches, or a file arrives damaged twice;
    ``HubUnreachableError`` if the hub is silent for longer than is waited; ``NotEnoughResourcesError`` if the disk has
    no room for what is still to come.
    """
    asking = client or HubClient()
    root = config.output_path
    scratch = os.path.join(root, PARTIALS)
    with alone_in(scratch):
        memory = os.path.join(scratch, "commit.json")
        repository = open_repository(config.hf_id, config.kind, config.revision, memory=memory, client=asking)
        chosen = matching(_listed(repository, scratch, asking), config.urls_glob, repository)
        for file in chosen:
            checked_name(file.name, repository)
        fetch_all(repository, chosen, root, scratch, client=asking)
        shutil.rmtree(scratch)
    return HubDownload(
        source=repository.url,
        commit=repository.commit,
        files=tuple(together([lambda stop, file=file: _described(file, root) for file in chosen])),
    )


def matching(files: Sequence[HubFile], globs: Sequence[str], repository: Repository) -> list[HubFile]:
    """The files that match one of ``globs``, in which ``*`` crosses folders; all, if there are none.

    A glob that matches nothing is a ``DataError`` that lists near misses, an empty repository is one too.
    """
    if not files and not globs:
        raise DataError(f"{repository.url} has no files: check hf_id= and revision=")
    for glob in globs:
        if not any(fnmatch.fnmatchcase(file.name, glob) for file in files):
            names = [file.name for file in files]
            near = difflib.get_close_matches(glob, names, n=_SHOWN, cutoff=0.3) or names[:_SHOWN]
            raise DataError(f"{repository.url} has no file that matches {glob!r}; it has {', '.join(near) or 'none'}")
    return [file for file in files if not globs or any(fnmatch.fnmatchcase(file.name, glob) for glob in globs)]


def _listed(repository: Repository, scratch: str, client: HubClient) -> list[HubFile]:
    """The files of the commit; those that an earlier attempt wrote down, so that it can be ended without the hub."""
    memory = os.path.join(scratch, f"files-{repository.commit}.json")
    if known := read_remembered(memory, list[HubFile]):
        return known
    files = list_files(repository, client=client)
    write_whole(memory, msgspec.json.encode(files))
    return files


def _present(chosen: Sequence[HubFile], root: str) -> list[bool]:
    """Which of the files lie at their place, with the hub's digest."""
    paths = [os.path.join(root, file.name) for file in chosen]
    return together(
        [
            lambda stop, path=path, file=file: os.path.isfile(path) and has_content(path, file)
            for path, file in zip(paths, chosen, strict=True)
        ]
    )


def fetch_all(
    repository: Repository, chosen: Sequence[HubFile], root: str, scratch: str, *, client: HubClient | None = None
) -> None:
    """Bring the files below the folder ``root``, several at a time; what is on its way is in ``scratch``.

    Raises as ``download`` does.
    """
    asking = client or HubClient()
    missing = [file for file, here in zip(chosen, _present(chosen, root), strict=True) if not here]
    if is_offline():
        _check_complete(repository, chosen, missing)
    waiting = os.path.join(scratch, "files")
    to_come = sum(max(0, file.size - arrived_bytes(partial_path(waiting, file.name))) for file in missing)
    check_room(root, to_come, what=f"{len(missing)} of {len(chosen)} files of {repository.url}")
    tally = Tally(sum(file.size for file in chosen))
    tally.add(sum(file.size for file in chosen) - sum(file.size for file in missing), "")
    together(
        [
            lambda stop, file=file: fetch(
                repository, file, root, partials=waiting, client=asking, stop=stop, tally=tally
            )
            for file in missing
        ]
    )


def _check_complete(repository: Repository, chosen: Sequence[HubFile], missing: Sequence[HubFile]) -> None:
    if missing:
        raise HubUnreachableError(
            f"{repository.url} can't be read from the hub: HF_HUB_OFFLINE is set, and {len(missing)} of {len(chosen)} "
            f"files are not here yet, such as {missing[0].name}: unset it and run again; what is here is kept"
        )
    _LOG.warning(
        "HF_HUB_OFFLINE is set: %s is made of the %d files that an earlier attempt has brought",
        repository.url,
        len(chosen),
    )


def _described(file: HubFile, root: str) -> DownloadedFile:
    digest = file.sha256 or file_sha256(os.path.join(root, file.name))
    return DownloadedFile(name=file.name, bytes=file.size, sha256=digest)
