"""URLs that a download can go to. Syntax alone decides; nobody is asked."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from marin.errors import ConfigurationError

WEB_SCHEMES = ("http", "https")
SCHEMES = (*WEB_SCHEMES, "s3", "gs", "memory")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_LONGEST_HOST = 253
_SAFE = "/?#[]@!$&'()*+,;=:%~"
"""What has a meaning in a URL, so that it stays as it is when the rest is escaped."""


def checked_url(name: str, url: object) -> str:
    """``url``, if it is one that can be fetched. ``ConfigurationError`` in the name of ``name``, with what to write.

    >>> checked_url("raw/a", "https://example.org/a.jsonl")
    'https://example.org/a.jsonl'
    """
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not isinstance(url, str) or not separator or scheme not in SCHEMES:
        lower = f"; write {scheme.lower()}:// in lower case" if scheme.lower() in SCHEMES else ""
        known = ", ".join(f"{known}://" for known in SCHEMES if known != "memory")
        local = "" if lower else "; files of this machine need no download"
        raise ConfigurationError(f"{name}: {url!r} is not a URL of {known}{lower}{local}")
    if scheme in WEB_SCHEMES and "@" in re.split(r"[/?#]", rest, maxsplit=1)[0]:
        place = f"{scheme}://{rest.rpartition('@')[2]}"
        raise ConfigurationError(
            f"{name}: the URL of {place} has a password in it, which would be kept in records: "
            "give a URL that needs none, such as a signed one, or fetch the file beforehand"
        )
    if fault := _fault_of_web(url) if scheme in WEB_SCHEMES else _fault_of_store(url):
        raise ConfigurationError(f"{name}: {url!r} is not a valid URL: {fault}")
    return url


def _fault_of_web(url: str) -> str | None:
    if url != url.strip() or any(ord(letter) < 32 or ord(letter) == 127 for letter in url):
        return "it has a line end, a tab or a space at an end: remove it"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as fault:
        return f"{fault}: correct its host and port"
    if fault := _fault_of_host(parts):
        return fault
    if port == 0:
        return "port 0 is none: correct it"
    if not url.isascii() or " " in url:
        try:
            return f"it has characters that must be escaped: write {_escaped(parts)!r}"
        except UnicodeError:
            return "it has characters that no server can be sent: correct it"
    return None


def _fault_of_host(parts: SplitResult) -> str | None:
    host = parts.hostname or ""
    if not host:
        return "it names no host: write https://host/path"
    if ":" in host:  # an address of version 6, whose form has been looked at
        return None
    try:
        known = _ascii(host)
    except UnicodeError as fault:
        return f"{host!r} can't be a host ({fault}): correct it"
    labels = known.removesuffix(".").split(".")
    if len(known) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, labels)):
        return f"{host!r} can't be a host: correct it"
    if known != host:
        return f"its host is not ASCII: write {_escaped(parts)!r}"
    return None


def _ascii(host: str) -> str:
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _escaped(parts: SplitResult) -> str:
    host = _ascii(parts.hostname or "")
    place = f"[{host}]" if ":" in host else host
    netloc = place if parts.port is None else f"{place}:{parts.port}"
    return quote(urlunsplit(parts._replace(netloc=netloc)), safe=_SAFE)


def _fault_of_store(url: str) -> str | None:
    """Keys of an object store may have any character that can be shown."""
    if not url.isprintable():
        return "it has characters that can't be shown: correct it"
    try:
        bucket = urlsplit(url).netloc
    except ValueError as fault:
        return f"{fault}: correct its bucket"
    if not bucket:
        return "it names no bucket: write s3://bucket/key"
    return None
