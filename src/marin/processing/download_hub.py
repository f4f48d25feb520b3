"""The step that downloads files of one commit from the Hugging Face hub."""

from __future__ import annotations

import difflib
import fnmatch
import os
import shutil
from collections.abc import Sequence

from marin.errors import DataError
from marin.execution.progress import report
from marin.processing.download import DownloadedFile, HubDownload, HubDownloadConfig
from marin.processing.durable import commit_file
from marin.processing.hub import HubFile, Repository, fetch, has_content, list_files, open_repository
from marin.processing.input_files import file_sha256

PARTIAL = "partial"
"""Folder of what is on its way, and of the commit that it belongs to."""


def download(config: HubDownloadConfig) -> HubDownload:
    """Fetch the files, or those that an earlier attempt did not; each has the hub's digest when it appears.

    Raises ``DataError`` if the repository can't be read, nothing matches, or a file arrives damaged.
    """
    scratch = os.path.join(config.output_path, PARTIAL)
    memory = os.path.join(scratch, "commit.json")
    repository = open_repository(config.hf_id, config.kind, config.revision, memory=memory)
    chosen = matching(list_files(repository), config.urls_glob, repository)
    total, done = sum(file.size for file in chosen), 0
    for file in chosen:
        report(done / 1e6, total / 1e6, "MB", file.name)
        _place(repository, file, config.output_path, scratch)
        done += file.size
    report(done / 1e6, total / 1e6, "MB")
    shutil.rmtree(scratch)
    return HubDownload(
        source=repository.url,
        commit=repository.commit,
        files=tuple(_described(file, config.output_path) for file in chosen),
    )


def matching(files: Sequence[HubFile], globs: Sequence[str], repository: Repository) -> list[HubFile]:
    """The files that match one of ``globs``, in which ``*`` crosses folders; all, if there are none.

    A glob that matches nothing is a ``DataError`` that lists near misses.
    """
    for glob in globs:
        if not any(fnmatch.fnmatchcase(file.name, glob) for file in files):
            names = [file.name for file in files]
            near = difflib.get_close_matches(glob, names, n=5, cutoff=0.3) or names[:5]
            raise DataError(f"{repository.url} has no file that matches {glob!r}; it has {', '.join(near) or 'none'}")
    return [file for file in files if not globs or any(fnmatch.fnmatchcase(file.name, glob) for glob in globs)]


def _place(repository: Repository, file: HubFile, root: str, scratch: str) -> None:
    target = os.path.join(root, file.name)
    if os.path.isfile(target) and has_content(target, file):
        return
    path = fetch(repository, file, os.path.join(scratch, "files"))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    commit_file(path, target)


def _described(file: HubFile, root: str) -> DownloadedFile:
    digest = file.sha256 or file_sha256(os.path.join(root, file.name))
    return DownloadedFile(name=file.name, bytes=file.size, sha256=digest)
