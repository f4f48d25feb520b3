"""Repositories of the Hugging Face hub: one commit of one, its files, each checked against the hub's own digest.

``huggingface_hub`` speaks to it: its session, headers, login and errors. What it leaves out is done here: it does not
try again where the hub answers 503, waits for ever for a listing that stalls, starts a file anew when its process was
killed, and compares sizes only.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import huggingface_hub
import msgspec
from huggingface_hub import constants
from huggingface_hub.utils import build_hf_headers

from marin.errors import DataError
from marin.processing.download import RepositoryKind
from marin.processing.durable import commit_file, read_remembered, write_whole
from marin.processing.hub_faults import Asked, given_up, passing_faults, plainly
from marin.processing.hub_origin import HubClient, HubFile, HubOrigin, Repository
from marin.processing.retrying import PassingFault, Retries, retried
from marin.processing.transfer import Tally, Transfer, partial_path
from marin.storage.store import is_ours

__all__ = [
    "PARTIALS",
    "HubClient",
    "HubFile",
    "Repository",
    "current_commit",
    "fetch",
    "has_content",
    "is_offline",
    "list_files",
    "open_repository",
    "plainly",
]

PARTIALS = ".partial"
"""Folder, below that of the files, of those on their way, and of what an attempt leaves to the next."""

_CHUNK = 1 << 20
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST_NAME = 255
"""Bytes of a part of a path that file systems take."""

_CLIENT = HubClient()


@dataclass(frozen=True, kw_only=True)
class _LookedUp:
    """What a revision was when it was looked up."""

    revision: str
    repository: Repository


def is_offline() -> bool:
    """Whether ``HF_HUB_OFFLINE`` forbids to ask the hub."""
    return constants.HF_HUB_OFFLINE


def open_repository(
    name: str,
    kind: RepositoryKind,
    revision: str,
    *,
    memory: str,
    called: str | None = None,
    client: HubClient = _CLIENT,
) -> Repository:
    """The commit that ``revision`` is now; the one in the file ``memory``, if an earlier attempt left it there.

    ``called`` begins the message if it can't be told.
    """
    if (looked_up := read_remembered(memory, _LookedUp)) is not None:
        known = looked_up.repository
        if (known.name, known.kind, looked_up.revision) == (name, kind, revision) and _COMMIT.fullmatch(known.commit):
            return known
    commit = current_commit(name, kind, revision, called=called, client=client)
    repository = Repository(name=name, kind=kind, commit=commit)
    os.makedirs(os.path.dirname(memory), exist_ok=True)
    write_whole(memory, msgspec.json.encode(_LookedUp(revision=revision, repository=repository)))
    return repository


def current_commit(
    name: str, kind: RepositoryKind, revision: str | None, *, called: str | None = None, client: HubClient = _CLIENT
) -> str:
    """The commit that ``revision`` (``None``: the default branch) is now.

    Raises ``HubUnreachableError`` within seconds if nobody answers, and after ``client.retries`` if the hub
    answers that it can't now; ``DataError`` for its other answers. The message begins with ``called``.
    """
    asked = Asked(name=name, kind=kind, revision=revision, called=called)
    path = "" if revision is None else f"/revision/{quote(revision, safe='')}"
    # Who has no network at all is told so at once; once the hub has answered, more patience is in place.
    retries = replace(client.retries, unanswered=min(2, client.retries.unanswered))
    answer, _ = _ask(client, asked, f"{_api(client, name, kind)}{path}", client.reach, retries)
    commit = answer.get("sha") if isinstance(answer, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise DataError(
            f"the hub does not say which commit {name}@{revision} is: check HF_ENDPOINT, or try again later"
        )
    return commit


def list_files(repository: Repository, *, client: HubClient = _CLIENT) -> list[HubFile]:
    """Every file of the commit, sorted by name."""
    asked = Asked(name=repository.name, kind=repository.kind, revision=repository.commit)
    tree = f"{_api(client, repository.name, repository.kind)}/tree/{repository.commit}"
    seen, query = set[str](), "recursive=true"
    found = dict[str, HubFile]()
    while query:
        seen.add(query)
        entries, following = _ask(client, asked, f"{tree}?{query}", client.listing, client.retries)
        try:
            listed = msgspec.convert(entries, list[dict[str, Any]])
            files = [_described(entry) for entry in listed if msgspec.convert(entry, _Entry).type == "file"]
        except msgspec.ValidationError as fault:
            raise DataError(f"{asked.beginning}: its listing is not one ({fault}): check HF_ENDPOINT") from fault
        # Of the next page only what is asked, and asked of the same server: it is given the login.
        query = urlsplit(following or "").query
        twice = next((file.name for file in files if file.name in found), None)
        if twice is not None or query in seen:
            raise DataError(f"{asked.beginning}: its listing repeats itself ({twice or query}): check HF_ENDPOINT")
        found |= {file.name: file for file in files}
    return [found[name] for name in sorted(found)]


def fetch(
    repository: Repository,
    file: HubFile,
    folder: str,
    *,
    partials: str | None = None,
    client: HubClient = _CLIENT,
    stop: threading.Event | None = None,
    tally: Tally | None = None,
) -> str:
    """The path of ``file`` below ``folder``, downloaded unless it is there with the hub's digest.

    What has arrived of it stays in ``partials``, a folder on the same disk, and the next attempt goes on from there.
    Raises ``HubUnreachableError`` when all tries are used up, and ``DataError`` if the hub refuses, or what arrives is
    twice not what the hub has.
    """
    path = os.path.join(folder, checked_name(file.name, repository))
    if os.path.isfile(path) and has_content(path, file):
        return path
    waiting = partial_path(partials or os.path.join(folder, PARTIALS), file.name)
    for needed in (path, waiting):
        os.makedirs(os.path.dirname(needed), exist_ok=True)
    origin = HubOrigin(client=client, repository=repository, file=file)
    asked = Asked(name=repository.name, kind=repository.kind, revision=repository.commit, file=file.name)
    with given_up(asked):
        transfer = Transfer(origin, waiting, size=file.size, fault_of=partial(_fault_of, file=file), tally=tally)
        transfer.run(client.retries, stop)
    commit_file(waiting, path)
    return path


def checked_name(name: str, repository: Repository) -> str:
    """``name``, which stays inside the folder that it is put into, beside what Marin keeps there."""
    parts = name.split("/")
    strange = {"", ".", ".."} & set(parts) or "\0" in name or max(map(len, map(os.fsencode, parts))) > _LONGEST_NAME
    if strange or parts[0] == PARTIALS or is_ours(parts[0]):
        raise DataError(
            f"{repository.url} has a file called {name!r}, which can't lie in an artifact: leave it out with urls_glob"
        )
    return name


def has_content(path: str, file: HubFile) -> bool:
    """Whether the content at ``path`` is that of ``file``, by the hub's digest."""
    return _fault_of(path, file=file) is None


def _fault_of(path: str, *, file: HubFile) -> str | None:
    if (size := os.path.getsize(path)) != file.size:
        return f"it has {size:,} bytes, on the hub {file.size:,}"
    # A git blob id is the sha1 of a header and the content.
    digest = hashlib.sha256() if file.sha256 else hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return None if digest.hexdigest() == (file.sha256 or file.blob_id) else "its digest is not the hub's"


class _Entry(msgspec.Struct):
    """What every line of a listing has."""

    type: str


class _Large(msgspec.Struct):
    oid: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _FileEntry(msgspec.Struct):
    path: Annotated[str, msgspec.Meta(min_length=1)]
    size: Annotated[int, msgspec.Meta(ge=0)]
    oid: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})\Z")]
    lfs: _Large | None = None


def _described(listed: dict[str, Any]) -> HubFile:
    entry = msgspec.convert(listed, _FileEntry)
    return HubFile(name=entry.path, size=entry.size, sha256=entry.lfs.oid if entry.lfs else None, blob_id=entry.oid)


def _api(client: HubClient, name: str, kind: RepositoryKind) -> str:
    return f"{(client.endpoint or constants.ENDPOINT).rstrip('/')}/api/{kind}s/{name}"


def _json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as fault:
        # A page of HTML, such as a login, is what somebody else wants to say; JSON that ends early was cut.
        if content.lstrip()[:1] in (b"{", b"["):
            raise PassingFault(f"the hub's answer arrived torn ({fault})") from fault
        raise


def _ask(client: HubClient, asked: Asked, url: str, seconds: float, retries: Retries) -> tuple[Any, str | None]:
    """The JSON at ``url``, and where its next page is."""

    def once() -> tuple[Any, str | None]:
        with passing_faults(asked, now=retries.now()):
            response = huggingface_hub.get_session().get(
                url, headers=build_hf_headers(), timeout=seconds, follow_redirects=True
            )
            huggingface_hub.hf_raise_for_status(response)
            return _json(response.content), response.links.get("next", {}).get("url")

    with given_up(asked):
        return retried(once, retries, what=asked.called or asked.name)
