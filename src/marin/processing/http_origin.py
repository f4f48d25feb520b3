"""Bytes of a URL of the web, through the standard library: proxies and certificates are those of the environment."""

from __future__ import annotations

import contextlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http.client import HTTPMessage
from typing import IO
from urllib.parse import urlsplit

from marin.errors import DataError
from marin.processing.http_answers import certificate_fault, compression_of, is_passing, range_of, unsatisfied_size
from marin.processing.origins import Answer, NotTheFile, OutOfRange, UnplacedPart
from marin.processing.retrying import PassingFault, asked_wait
from marin.processing.urls import WEB_SCHEMES

_CHUNK = 1 << 18


@dataclass(frozen=True, kw_only=True)
class HttpOrigin:
    """One file of a web server, to be called ``name`` here.

    ``stall``: seconds without a byte before it counts as a cut.
    """

    url: str
    name: str
    stall: float = 30.0
    now: Callable[[], float] = time.time

    @property
    def shown(self) -> str:
        # What signs a request is nobody's business.
        return self.url.partition("?")[0]

    @contextlib.contextmanager
    def open(self, start: int, validator: str | None) -> Generator[Answer, None, None]:
        """See ``Origin``. With ``If-Range``, a server that has another content by now sends it from the beginning."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and validator is not None:
            headers["If-Range"] = validator
        with self._asked(headers) as response:
            first, end, size = self._range(response, start)
            yield Answer(
                start=first,
                end=end,
                size=size,
                validator=_validator(dict(response.headers)),
                chunks=self._chunks(response),
            )

    def size(self) -> int | None:
        """Its bytes, where the server tells them. Asks for one byte: a signed URL may allow GET alone."""
        try:
            with self._asked({"Range": "bytes=0-0"}) as response:
                return self._range(response, 0)[2]
        except OutOfRange as refused:
            return refused.size
        except UnplacedPart:
            return None

    @contextlib.contextmanager
    def _asked(self, headers: Mapping[str, str]) -> Generator[http.client.HTTPResponse, None, None]:
        request = urllib.request.Request(
            self.url, headers={"Accept-Encoding": "identity", "User-Agent": "marin", **headers}
        )
        try:
            response = urllib.request.build_opener(_WebRedirects).open(request, timeout=self.stall)
        except urllib.error.HTTPError as refused:
            with refused:
                raise self._refused(refused) from refused
        except (http.client.InvalidURL, UnicodeError) as fault:  # ours is checked when the step is described
            # The other URL is not shown: it may have a secret in it.
            raise self._final("the server sends who asks to another URL, which is none; check yours") from fault
        except (OSError, http.client.HTTPException) as fault:
            raise self._silent(fault) from fault
        with response:
            yield response

    def _chunks(self, response: http.client.HTTPResponse) -> Generator[bytes, None, None]:
        while True:
            try:
                chunk = response.read1(_CHUNK)
            except (OSError, http.client.HTTPException) as fault:
                raise self._silent(fault, "the connection was cut or fell silent") from fault
            if not chunk:
                return
            yield chunk

    def _range(self, response: http.client.HTTPResponse, asked: int) -> tuple[int, int | None, int | None]:
        headers = dict(response.headers)
        try:
            found = range_of(headers, response.status, asked)
        except NotTheFile as fault:
            raise self._final(f"{fault}: check the URL") from fault
        if compressed := compression_of(headers, self.name):
            encoding, name = compressed
            raise self._final(
                f"the server sends it compressed ({encoding}), though the file itself was asked for; "
                f"to keep what it sends, say so by its name: urls={{{name!r}: ...}}"
            )
        return found

    def _final(self, reason: str) -> DataError:
        return DataError(f"{self.shown} can't be downloaded: {reason}")

    def _refused(self, fault: urllib.error.HTTPError) -> Exception:
        status = " ".join(f"{fault.code} {fault.reason}".split())
        if fault.code == 416:
            return OutOfRange(unsatisfied_size(dict(fault.headers)))
        if is_passing(fault.code):
            return PassingFault(f"the server answers {status}", asked=asked_wait(dict(fault.headers), self.now()))
        match fault.code:
            case 401 | 403 | 407:
                remedy = "it needs a permission that the URL does not give, or no longer: get a URL that does"
            case 404 | 410:
                remedy = "there is no such file: check the URL"
            case _:
                remedy = "check the URL"
        return self._final(f"the server answers {status}; {remedy}")

    def _silent(self, fault: BaseException, what: str = "the server can't be reached") -> Exception:
        if certificate := certificate_fault(fault):
            return self._final(certificate)
        cause = fault.reason if isinstance(fault, urllib.error.URLError) else fault
        said = str(cause) or type(cause).__name__
        return PassingFault(f"{what} ({said})", remedy="check the network", answered=False)


class _WebRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to other URLs of the web alone; the standard library would go on to FTP too."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme.lower() not in WEB_SCHEMES:
            raise urllib.error.HTTPError(req.full_url, code, "and sends who asks away from the web", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _validator(headers: Mapping[str, str]) -> str | None:
    """A strong ``ETag``, else ``Last-Modified``: a weak one does not promise the same bytes."""
    lower = {key.lower(): value for key, value in headers.items()}
    tag = lower.get("etag", "")
    return tag if tag and not tag.startswith("W/") else lower.get("last-modified")
