"""A web server for tests: files with ranges and tags, folders as pages of links, and faults on demand."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Web:
    """``faults`` are what happens to the next requests for content: "500", or "cut" after half of it.

    ``ranges``: whether parts can be asked for. ``statuses`` are what is answered for paths that begin so, but to who
    sends ``login`` as "Authorization".
    """

    files: dict[str, bytes]
    ranges: bool = True
    faults: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])
    url: str = ""
    statuses: dict[str, int] = field(default_factory=dict[str, int])
    login: str = "Bearer right"

    @contextlib.contextmanager
    def serve(self) -> Generator[str, None, None]:
        """Serves on a port of its own until the block ends. Gives the address, without a final slash."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"web": self}))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self.url
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    web: Web
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        web, path = self.web, self.path.partition("?")[0].lstrip("/")
        asked = self.headers.get("Range")
        web.requests.append(f"{self.command} /{path}{f' {asked}' if asked else ''}")
        refused = [status for prefix, status in web.statuses.items() if path.startswith(prefix)]
        if refused and self.headers.get("Authorization") != web.login:
            self._send(refused[0], b"", {"Retry-After": "0"}, body=body)
            return
        content = web.files.get(path)
        if content is None and (page := self._page(path)):
            self._send(200, page, {"Content-Type": "text/html"}, body=body)
            return
        if content is None:
            self._send(404, b"", {}, body=body)
            return
        fault = web.faults.pop(0) if body and web.faults else ""
        if fault == "500":
            self._send(500, b"", {}, body=body)
            return
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        status = 200
        if web.ranges:
            headers["Accept-Ranges"] = "bytes"
            if found := re.fullmatch(r"bytes=(\d+)-(\d*)", asked or ""):
                start, stop = int(found[1]), min(int(found[2] or len(content)) + 1, len(content))
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
                status, content = 206, content[start:stop]
        self._send(status, content, headers, body=body, cut=fault == "cut")

    def _page(self, folder: str) -> bytes:
        prefix = f"{folder.rstrip('/')}/" if folder else ""
        names = {name.removeprefix(prefix).split("/")[0] for name in self.web.files if name.startswith(prefix)}
        below = {name: any(other.startswith(f"{prefix}{name}/") for other in self.web.files) for name in names}
        links = (
            f'<a href="/{prefix}{name}{"/" if below[name] else ""}">{name}</a>' for name in sorted(below, reverse=True)
        )
        return "\n".join(links).encode()

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut
