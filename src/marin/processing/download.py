"""Describe a download: the artifact and the config of the step. The work is in ``download_hub``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, cast, get_args

from marin.errors import ConfigurationError, DataError
from marin.execution.artifact import Artifact

RepositoryKind: TypeAlias = Literal["dataset", "model"]
_HUB_URL = re.compile(r"(?:https?://huggingface\.co/|hf://)(?:datasets/)?([^/?#]+/[^/?#]+)")
_NOT_IN_REVISION = re.compile(r"[\s~^:?*\[\\\x00-\x1f\x7f]|\.\.|@\{|//|^[/-]|[/.]\Z")
"""What git forbids in the name of a branch or tag."""


@dataclass(frozen=True, kw_only=True)
class HubDownloadConfig:
    """What the step is asked to fetch: files of ``hf_id`` at ``revision`` that match one of the globs; none: all."""

    fingerprint_name: ClassVar[str] = "marin.HubDownloadConfig"

    output_path: str
    hf_id: str
    revision: str
    urls_glob: tuple[str, ...] = ()
    kind: RepositoryKind = "dataset"


@dataclass(frozen=True, kw_only=True)
class DownloadedFile:
    """One file: its name below the artifact, its bytes, and the sha256 of its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class HubDownload(Artifact):
    """Files of one commit of a repository of the Hugging Face hub, at ``path`` under the names they have there."""

    fingerprint_name: ClassVar[str] = "marin.HubDownload"

    source: str
    commit: str
    files: tuple[DownloadedFile, ...]

    def verify(self) -> None:
        """Raise ``DataError`` unless every file lies at ``path`` in full."""
        for file in self.files:
            path = os.path.join(self.path, file.name)
            if not os.path.isfile(path) or os.path.getsize(path) != file.bytes:
                raise DataError(f"{path} is missing or has not {file.bytes:,} bytes: download it again")


def checked_request(
    name: str, *, hf_id: object, revision: object, urls_glob: object, kind: object
) -> tuple[tuple[str, ...], RepositoryKind]:
    """The globs and the kind, if all is what ``HubDownloadConfig`` can hold. ``ConfigurationError`` in the name of
    ``name``, with what to write instead."""
    if not isinstance(hf_id, str):
        raise ConfigurationError(f"{name}: hf_id={hf_id!r} is not a text; write 'organisation/name'")
    if found := _HUB_URL.match(hf_id):
        raise ConfigurationError(f"{name}: hf_id={hf_id!r} is a URL; write {found[1]!r}")
    if not isinstance(revision, str) or not revision or _NOT_IN_REVISION.search(revision):
        hint = f"; write '{revision}'" if type(revision) is int else ", such as 'main'"
        raise ConfigurationError(f"{name}: revision={revision!r} is not the name of a branch, tag or commit{hint}")
    if kind not in get_args(RepositoryKind):
        raise ConfigurationError(f"{name}: kind={kind!r} is neither 'dataset' nor 'model'")
    if isinstance(urls_glob, str):
        urls_glob = (urls_glob,)
    # Of a set the order is another one in each process, and an iterator can be read once.
    if not isinstance(urls_glob, Sequence) or isinstance(urls_glob, bytes | bytearray | memoryview):
        raise ConfigurationError(
            f"{name}: urls_glob={urls_glob!r} is neither a glob nor a list of them; leave it out for all files"
        )
    globs = tuple(cast("Sequence[object]", urls_glob))
    return tuple(_checked_glob(name, glob) for glob in globs), cast("RepositoryKind", kind)


def _checked_glob(name: str, glob: object) -> str:
    if not isinstance(glob, str):
        raise ConfigurationError(f"{name}: urls_glob= has {glob!r}, which is not a text; write globs such as 'data/*'")
    if "://" in glob or not glob.isprintable() or {"", ".", ".."} & set(glob.split("/")):
        raise ConfigurationError(
            f"{name}: urls_glob= has {glob!r}, which no path in a repository can match: "
            "these begin with the name of a file or folder there, such as 'data/*.parquet'"
        )
    return glob
