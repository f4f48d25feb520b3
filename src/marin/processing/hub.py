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

from marin.errors import DataError, HubUnreachableError, MarinError
from marin.processing.download import RepositoryKind
from marin.processing.durable import write_whole

_CHUNK = 1 << 20
_REACH_SECONDS = 5.0
"""How long the hub may take to answer the first question. What follows is retried by its client for a minute."""


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


def open_repository(
    name: str, kind: RepositoryKind, revision: str, *, memory: str, called: str | None = None
) -> Repository:
    """The commit that ``revision`` is now; the one in the file ``memory``, if an earlier attempt left it there.

    ``called`` begins the message if it can't be told.
    """
    if os.path.exists(memory):
        with open(memory, "rb") as stream:
            return msgspec.json.decode(stream.read(), type=Repository)
    commit = current_commit(name, kind, revision, called=called)
    repository = Repository(name=name, kind=kind, commit=commit)
    os.makedirs(os.path.dirname(memory), exist_ok=True)
    write_whole(memory, msgspec.json.encode(repository))
    return repository


def current_commit(name: str, kind: RepositoryKind, revision: str | None, *, called: str | None = None) -> str:
    """The commit that ``revision`` (``None``: the default branch) is now.

    Raises ``HubUnreachableError`` within seconds if the hub can't be asked, ``DataError`` for its other answers; the
    message begins with ``called``.
    """
    with plainly(name, kind, called):
        api = huggingface_hub.HfApi()
        commit = api.repo_info(name, repo_type=kind, revision=revision, timeout=_REACH_SECONDS).sha
    if commit is None:
        raise DataError(f"the hub does not say which commit {name}@{revision} is: try again later")
    return commit


def list_files(repository: Repository) -> list[HubFile]:
    """Every file of the commit, sorted by name."""
    with plainly(repository.name, repository.kind):
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
    with plainly(repository.name, repository.kind):
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
def plainly(name: str, kind: RepositoryKind, called: str | None = None) -> Generator[None, None, None]:
    """Whatever the hub's client raises in the block becomes one plain line that begins with ``called``."""
    try:
        yield
    except MarinError:
        raise
    except Exception as fault:  # the client lets the errors of its HTTP library through, whichever that is
        reached, reason = _reason(fault)
        message = f"{called or f'{kind} {name!r}'} can't be read from the hub: {reason}"
        raise (DataError if reached else HubUnreachableError)(message) from fault


def _reason(fault: BaseException) -> tuple[bool, str]:
    """Whether the hub has answered, and what is wrong, in one line."""
    errors = huggingface_hub.errors
    if isinstance(fault, errors.LocalEntryNotFoundError | errors.FileMetadataError) and fault.__cause__:
        fault = fault.__cause__  # what kept the client from asking the hub
    first_line = next(iter(str(fault).strip().splitlines()), type(fault).__name__).rstrip(". ")
    match fault:
        case errors.OfflineModeIsEnabled():
            return False, "HF_HUB_OFFLINE is set, which forbids to ask it: unset it, or use files of this machine"
        case errors.GatedRepoError():
            return True, "it is gated: ask for access on its page, then 'hf auth login'"
        case errors.RepositoryNotFoundError():
            return True, "there is no such repository: check the id; a private one needs 'hf auth login'"
        case errors.RevisionNotFoundError():
            return True, "it has no such revision: check revision="
        case errors.EntryNotFoundError():
            return True, f"it lacks a file ({first_line})"
        case errors.HfHubHTTPError():
            return True, f"the hub refuses ({first_line}): try again later"
        case errors.HFValidationError():
            return True, f"the id is not one ({first_line})"
        case _:
            return False, f"the hub can't be reached ({first_line}): check the network"
