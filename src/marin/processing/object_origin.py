"""Bytes of a URL of an object store, through ``fsspec``: credentials are those that its libraries find."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import fsspec

from marin.errors import ConfigurationError, DataError
from marin.processing.origins import Answer
from marin.processing.retrying import PassingFault

_PIECE = 16 << 20
"""Bytes of one request: what is held in memory, and what a cut costs."""

_VALIDATORS = ("ETag", "etag", "generation", "version_id", "md5Hash", "LastModified", "mtime", "created")
_EXTRAS = {"s3": "marin[s3]", "gs": "marin[gcs]"}
_CREDENTIALS = ("NoCredentials", "PartialCredentials", "CredentialRetrieval", "DefaultCredentials", "TokenRetrieval")
_FINAL = (ValueError, TypeError, IsADirectoryError, NotADirectoryError, NotImplementedError)


@dataclass(frozen=True, kw_only=True)
class ObjectOrigin:
    """One object of a store."""

    url: str
    piece: int = _PIECE

    @property
    def shown(self) -> str:
        return self.url

    @contextlib.contextmanager
    def open(self, start: int, validator: str | None) -> Generator[Answer, None, None]:
        """See ``Origin``. What has changed by now begins at 0; what changes meanwhile is told after the last byte."""
        system, path = self._system()
        size, current = self._state(system, path)
        first = start if validator is None or validator == current else 0
        if first > size:
            first = 0
        yield Answer(
            start=first, end=size, size=size, validator=current, chunks=self._chunks(system, path, first, size, current)
        )

    def size(self) -> int | None:
        """Its bytes."""
        return self._state(*self._system())[0]

    def _chunks(
        self, system: Any, path: str, start: int, size: int, validator: str | None
    ) -> Generator[bytes, None, None]:
        for begin in range(start, size, self.piece):
            with self._translated():
                piece = bytes(system.cat_file(path, start=begin, end=min(size, begin + self.piece)))
            if begin + self.piece >= size and self._state(system, path) != (size, validator):
                # Before its last bytes, so that what has arrived is never taken for the whole.
                raise PassingFault("it has changed while it was read", asked=0.0)
            yield piece

    def _state(self, system: Any, path: str) -> tuple[int, str | None]:
        with self._translated():
            system.invalidate_cache()
            about = system.info(path)
            if about.get("type") == "directory":
                raise IsADirectoryError
            found = next((str(about[key]) for key in _VALIDATORS if about.get(key) is not None), None)
            return int(about["size"]), found

    def _system(self) -> tuple[Any, str]:
        try:
            with self._translated():
                return fsspec.core.url_to_fs(self.url)
        except ImportError as fault:
            extra = _EXTRAS.get(self.url.partition("://")[0])
            remedy = f"pip install '{extra}'" if extra else "install what it names"
            raise ConfigurationError(f"{self.url}: {fault}: {remedy}") from fault

    @contextlib.contextmanager
    def _translated(self) -> Generator[None, None, None]:
        """Faults of whichever library; one that is not known may pass."""
        what = f"{self.url} can't be downloaded"
        try:
            yield
        except ImportError:
            raise
        except FileNotFoundError as fault:
            raise DataError(f"{what}: there is no such object: check the URL") from fault
        except PermissionError as fault:
            raise DataError(f"{what}: it may not be read ({_said(fault)}): check your credentials for it") from fault
        except IsADirectoryError as fault:
            raise DataError(f"{what}: it is a folder: give the URLs of its files") from fault
        except _FINAL as fault:
            raise DataError(f"{what}: {_said(fault)}: check the URL") from fault
        except Exception as fault:  # the libraries of the stores let through whatever theirs raise
            if any(name in type(fault).__name__ for name in _CREDENTIALS):
                raise DataError(f"{what}: {_said(fault)}: set up credentials for the store") from fault
            raise PassingFault(f"the store fails ({_said(fault)})", remedy="check the network and the store") from fault


def _said(fault: BaseException) -> str:
    return next(iter(str(fault).strip().splitlines()), "").rstrip(". ") or type(fault).__name__
