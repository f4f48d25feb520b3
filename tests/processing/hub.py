"""A server on this machine that speaks as much of the Hugging Face hub's protocol as reading one repository needs."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from tests.processing.file_server import Event, FileServer


@dataclass
class Hub(FileServer):
    """One repository ``org/poems``, as data set and as model.

    Parquet files are large files: those who ask for one are sent to ``cdn``, another server. ``requests`` are the paths
    asked for; ``damaged`` is what arrives in place of a file; ``page`` is how many files a page of a listing has,
    ``claimed`` are sizes that the listing has in place of the true ones, ``token`` is the login without which nobody is
    served.
    """

    commit: str = "a" * 40
    damaged: dict[str, bytes] = field(default_factory=dict[str, bytes])
    requests: list[str] = field(default_factory=list[str])
    page: int = 1000
    token: str | None = None
    claimed: dict[str, int] = field(default_factory=dict[str, int])
    cdn: FileServer = field(default_factory=FileServer)

    @contextlib.contextmanager
    def serve(self) -> Iterator[str]:
        with self.cdn.serve(), super().serve() as endpoint:
            yield endpoint

    def answer(self, request: BaseHTTPRequestHandler, path: str, event: Event) -> None:
        self.requests.append(path)
        headers = {"X-Repo-Commit": self.commit}
        if "/org/poems" not in path:
            self.send(request, 401, {"X-Error-Code": "RepoNotFound"}, b"", event)
        elif self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            self.send(request, 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"", event)
        elif path.startswith("/api/"):
            self._answer_api(request, path, event)
        elif "/resolve/" in path and (name := path.split("/resolve/")[1].split("/", 1)[1]) in self.files:
            data = self.damaged.get(name, self.files[name])
            if name.endswith(".parquet") and event.status is None:
                self.cdn.files[name] = data
                location = f"{self.cdn.endpoint}/{name}?signed=1"
                digest = hashlib.sha256(self.files[name]).hexdigest()
                linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(data)), "Location": location}
                self.send(request, 302, {**headers, **linked}, b"", event)
            else:
                self.send_file(request, data, headers, event)
        else:
            self.send(request, 404, {**headers, "X-Error-Code": "EntryNotFound"}, b"", event)

    def _answer_api(self, request: BaseHTTPRequestHandler, path: str, event: Event) -> None:
        if "/revision/" in path and path.rsplit("/", 1)[1] not in ("main", self.commit):
            return self.send(request, 404, {"X-Error-Code": "RevisionNotFound"}, b"", event)
        if "/tree/" not in path:
            siblings = [{"rfilename": name} for name in self.files]
            about = {"id": "org/poems", "sha": self.commit, "siblings": siblings, "tags": []}
            return self.send(request, 200, {}, json.dumps(about).encode(), event)
        begin = int(parse_qs(urlsplit(request.path).query).get("cursor", ["0"])[0])
        names = list(self.files)[begin : begin + self.page]
        headers = dict[str, str]()
        if begin + self.page < len(self.files):
            following = f"{self.endpoint}{path}?recursive=true&cursor={begin + self.page}"
            headers["Link"] = f'<{following}>; rel="next"'
        entries = [
            {
                "type": "file",
                "size": self.claimed.get(name, len(self.files[name])),
                "path": name,
                **self._digest(name, self.files[name]),
            }
            for name in names
        ]
        folder = {"type": "directory", "path": "data", "oid": "0" * 40, "size": 0}
        return self.send(request, 200, headers, json.dumps([folder, *entries]).encode(), event)

    def _digest(self, name: str, data: bytes) -> dict[str, object]:
        """As the hub says it: a git blob id, and for large files (here: Parquet) the sha256 too."""
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        if not name.endswith(".parquet"):
            return {"oid": oid}
        return {"oid": oid, "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}
