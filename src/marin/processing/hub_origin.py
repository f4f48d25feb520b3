"""A file of a commit of the Hugging Face hub, as bytes from wherever the hub sends those who ask for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers

from marin.errors import DataError
from marin.processing.download import RepositoryKind
from marin.processing.http_answers import range_of, unsatisfied_size
from marin.processing.hub_faults import Asked, passing_faults
from marin.processing.origins import Answer, NotTheFile, OutOfRange
from marin.processing.retrying import Retries

_PIECE = 10_000_000_000
"""Bytes asked for at once. The servers behind the hub refuse to send more than 50 GB in one answer."""


@dataclass(frozen=True, kw_only=True)
class HubClient:
    """How the hub is asked. ``endpoint`` is where it is; ``None``: ``HF_ENDPOINT``, else huggingface.co.

    Seconds: ``reach`` until the first question must be answered, ``listing`` until a page of a listing must be (the hub
    needs a while for the first of a large repository), ``stall`` without a byte of a file before it counts as a cut
    (``None``: ``HF_HUB_DOWNLOAD_TIMEOUT``, else 10).
    """

    endpoint: str | None = None
    retries: Retries = field(default_factory=Retries)
    reach: float = 5.0
    listing: float = 30.0
    stall: float | None = None
    piece: int = _PIECE


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


@dataclass(frozen=True, kw_only=True)
class HubOrigin:
    """One file of a commit, from wherever the hub sends those who ask for it."""

    client: HubClient
    repository: Repository
    file: HubFile

    @property
    def shown(self) -> str:
        return f"{self.repository.url}/{self.file.name}"

    @contextlib.contextmanager
    def open(self, start: int, validator: str | None) -> Generator[Answer, None, None]:
        del validator  # a commit does not change, and the digest is checked
        client, repository, file = self.client, self.repository, self.file
        url = huggingface_hub.hf_hub_url(
            repository.name,
            file.name,
            repo_type=repository.kind,
            revision=repository.commit,
            endpoint=client.endpoint,
        )
        # As it lies there: of a compressed answer neither size nor ranges would be those of the file.
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if start or file.size > client.piece:
            headers["Range"] = f"bytes={start}-{min(file.size, start + client.piece) - 1}"
        stall = client.stall or float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
        asked = Asked(name=repository.name, kind=repository.kind, revision=repository.commit, file=file.name)
        translated: Callable[[], contextlib.AbstractContextManager[None]] = partial(
            passing_faults, asked, now=client.retries.now()
        )
        with contextlib.ExitStack() as opened:
            with translated():
                response = opened.enter_context(
                    huggingface_hub.get_session().stream(
                        "GET", url, headers=headers, timeout=stall, follow_redirects=True
                    )
                )
                if response.status_code >= 400:
                    response.read()  # what it has to say about the error
            if response.status_code == 416:
                raise OutOfRange(unsatisfied_size(response.headers))
            with translated():
                huggingface_hub.hf_raise_for_status(response)
            try:
                first, end, size = range_of(response.headers, response.status_code, start)
            except NotTheFile as fault:
                raise DataError(f"{asked.beginning}: {fault}: check HF_ENDPOINT and the network") from fault

            def chunks() -> Generator[bytes, None, None]:
                with translated():
                    yield from response.iter_raw()

            yield Answer(start=first, end=end, size=size, validator=None, chunks=chunks())
