"""A server on this machine that speaks as much of the Hugging Face hub's protocol as reading one data set needs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Hub:
    """One repository ``org/poems``, as data set and as model.

    ``requests`` are the paths asked for; ``damaged`` is what arrives in place of a file.
    """

    files: dict[str, bytes]
    commit: str = "a" * 40
    requests: list[str] = field(default_factory=list[str])
    damaged: dict[str, bytes] = field(default_factory=dict[str, bytes])
    endpoint: str = ""

    @contextlib.contextmanager
    def serve(self) -> Iterator[str]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub._answer(self, body=True)

            def do_HEAD(self) -> None:
                hub._answer(self, body=False)

            def log_message(self, format: str, *args: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self.endpoint
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = urlsplit(request.path).path
        self.requests.append(path)
        headers, data, status = {"X-Repo-Commit": self.commit}, b"", 404
        if path.startswith("/api/") and "/org/poems" in path:
            status, data = 200, self._api(path)
        elif "/org/poems/resolve/" in path:
            name = path.split("/resolve/")[1].split("/", 1)[1]
            if name in self.files:
                status, data = 200, self.damaged.get(name, self.files[name])
                headers["ETag"] = f'"{hashlib.sha1(data).hexdigest()}"'
            else:
                headers["X-Error-Code"] = "EntryNotFound"
        else:
            status, headers["X-Error-Code"] = 401, "RepoNotFound"
        request.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            request.send_header(key, value)
        request.end_headers()
        if body:
            request.wfile.write(data)

    def _digest(self, name: str, data: bytes) -> dict[str, object]:
        """As the hub says it: a git blob id, and for large files (here: Parquet) the sha256 too."""
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        if not name.endswith(".parquet"):
            return {"oid": oid}
        return {"oid": oid, "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}

    def _api(self, path: str) -> bytes:
        if "/tree/" in path:
            entries = [
                {"type": "file", "size": len(data), "path": name, **self._digest(name, data)}
                for name, data in self.files.items()
            ]
            return json.dumps(entries).encode()
        siblings = [{"rfilename": name} for name in self.files]
        return json.dumps({"id": "org/poems", "sha": self.commit, "siblings": siblings, "tags": []}).encode()
