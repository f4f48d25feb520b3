"""Files over HTTP from this machine, with ranges, validators, and a script of what goes wrong."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happens to one request: another status with its content, a cut or a stall after so many bytes, another file.

    ``whole``: the range that is asked for is ignored. ``stall_after=-1``: not even the head of an answer comes.
    ``changed``: headers that are others than the answer would have, ``None``: are missing.
    """

    status: int | None = None
    content: bytes = b"a fault of the script"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut_after: int | None = None
    stall_after: int | None = None
    body: bytes | None = None
    whole: bool = False
    changed: Mapping[str, str | None] = field(default_factory=dict[str, str | None])


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]


@dataclass
class FileServer:
    """Serves ``files`` by their names. Each request for a path takes the next of its ``events``, if one is left.

    ``events`` are found by the end of the path. ``validated=False``: without ``ETag``.
    """

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    events: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    seen: list[Seen] = field(default_factory=list[Seen])
    validated: bool = True
    ranged: bool = True
    endpoint: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def serve(self) -> Iterator[str]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._handle(self)

            def do_HEAD(self) -> None:
                owner._handle(self)

            def log_message(self, format: str, *args: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self._ended.clear()
        self.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self.endpoint
        finally:
            self._ended.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(urlsplit(request.path).path)
        with self._lock:
            self.seen.append(Seen(request.command, request.path, dict(request.headers)))
            key = next((key for key in self.events if path.endswith(key) and self.events[key]), None)
            event = self.events[key].pop(0) if key is not None else Event()
        with contextlib.suppress(ConnectionError):
            self.answer(request, path, event)

    def answer(self, request: BaseHTTPRequestHandler, path: str, event: Event) -> None:
        data = self.files.get(path.lstrip("/"))
        if data is None:
            self.send(request, 404, {}, b"no such file", event)
        else:
            self.send_file(request, data, {}, event)

    def send_file(self, request: BaseHTTPRequestHandler, data: bytes, headers: dict[str, str], event: Event) -> None:
        data = data if event.body is None else event.body
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        if self.validated:
            headers = {"ETag": etag, **headers}
        wanted = request.headers.get("Range", "")
        unchanged = request.headers.get("If-Range", etag) == etag
        if not wanted or event.whole or not self.ranged or not unchanged:
            return self.send(request, 200, headers, data, event)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last) + 1 if last else len(data), len(data))
        if start >= len(data):
            return self.send(request, 416, {"Content-Range": f"bytes */{len(data)}"}, b"", event)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return self.send(request, 206, headers, data[start:end], event)

    def send(
        self, request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], data: bytes, event: Event
    ) -> None:
        if event.stall_after == -1:
            self._ended.wait()
            return
        if event.status is not None:
            status, headers, data = event.status, event.headers, event.content
        request.send_response_only(status)  # without a date of its own
        for key, value in {"Content-Length": str(len(data)), **headers, **event.changed}.items():
            if value is not None:
                request.send_header(key, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        part = event.cut_after if event.stall_after is None else event.stall_after
        request.wfile.write(data if part is None else data[:part])
        request.wfile.flush()
        if event.stall_after is not None:
            self._ended.wait()
