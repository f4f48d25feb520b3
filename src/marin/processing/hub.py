"""Repositories of the Hugging Face hub: one commit of one, its files, each checked against the hub's own digest.

``huggingface_hub`` does the transfer; it compares sizes only, so a file's content is checked here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Generator
from dataclasses import dataclass

import huggingface_hub
import msgspec

from marin.errors import DataError, MarinError
from marin.processing.download import RepositoryKind
from marin.processing.durable import write_whole

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One commit of a repository."""

    name: str
    kind: RepositoryKind
    commit: str

    @property
    def url(self) -> str:
        return f"hf://{'datasets/' if self.kind == 'dataset' else ''}{self.name}@{self.commit}"


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """A file of a repository: its bytes, and its digest as sha256 (large files) or as git blob id."""

    name: str
    size: int
    sha256: str | None
    blob_id: str


def open_repository(name: str, kind: RepositoryKind, revision: str, *, memory: str) -> Repository:
    """The commit that ``revision`` is now; the one in the file ``memory``, if an earlier attempt left it there."""
    if os.path.exists(memory):
        with open(memory, "rb") as stream:
            return msgspec.json.decode(stream.read(), type=Repository)
    with _plainly(name, kind):
        commit = huggingface_hub.HfApi().repo_info(name, repo_type=kind, revision=revision).sha
    if commit is None:
        raise DataError(f"the hub does not say which commit {name}@{revision} is: try again later")
    repository = Repository(name=name, kind=kind, commit=commit)
    os.makedirs(os.path.dirname(memory), exist_ok=True)
    write_whole(memory, msgspec.json.encode(repository))
    return repository


def list_files(repository: Repository) -> list[HubFile]:
    """Every file of the commit, sorted by name."""
    with _plainly(repository.name, repository.kind):
        tree = huggingface_hub.HfApi().list_repo_tree(
            repository.name, repo_type=repository.kind, revision=repository.commit, recursive=True
        )
        entries = [entry for entry in tree if isinstance(entry, huggingface_hub.RepoFile)]
    found = [
        HubFile(
            name=entry.path,
            size=entry.size,
            sha256=None if entry.lfs is None else entry.lfs.sha256,
            blob_id=entry.blob_id,
        )
        for entry in entries
    ]
    return sorted(found, key=lambda file: file.name)


def fetch(repository: Repository, file: HubFile, folder: str) -> str:
    """The path of ``file`` below ``folder``, downloaded unless it is there.

    Raises ``DataError`` if what lies there is not what the hub has; it is then removed, so that trying again helps.
    """
    with _plainly(repository.name, repository.kind):
        path = huggingface_hub.hf_hub_download(
            repository.name, file.name, repo_type=repository.kind, revision=repository.commit, local_dir=folder
        )
    if not has_content(path, file):
        os.unlink(path)
        raise DataError(f"{repository.url}/{file.name} arrived damaged: its digest is not the hub's; run again")
    return path


def has_content(path: str, file: HubFile) -> bool:
    """Whether the content at ``path`` is that of ``file``, by the hub's digest."""
    # A git blob id is the sha1 of a header and the content.
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest() == (file.sha256 or file.blob_id)


@contextlib.contextmanager
def _plainly(name: str, kind: RepositoryKind) -> Generator[None, None, None]:
    try:
        yield
    except MarinError:
        raise
    except Exception as fault:  # the client lets the errors of its HTTP library through, whichever that is
        raise DataError(
            f"{kind} {name!r} can't be read from the hub: {fault}. Check the id, the revision and the network; "
            f"a private or gated one needs 'hf auth login'; a path is written './{name}'"
        ) from fault
