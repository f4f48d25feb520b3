"""Describe a download: the artifact and the config of the step. The work is in ``download_hub``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from marin.errors import DataError
from marin.execution.artifact import Artifact

RepositoryKind: TypeAlias = Literal["dataset", "model"]


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
