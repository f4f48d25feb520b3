"""Which layout lies at a place, and its splits as streams."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from marin.errors import ConfigurationError, DataError
from marin.processing.tokenize.foreign.arrow import ArrowLayout
from marin.processing.tokenize.foreign.bare import LlmcLayout, NanogptLayout
from marin.processing.tokenize.foreign.datatrove import DatatroveLayout
from marin.processing.tokenize.foreign.flat import FlatStream
from marin.processing.tokenize.foreign.layout import Evidence, Layout, Place, by_split, look_at
from marin.processing.tokenize.foreign.megatron import MegatronLayout
from marin.processing.tokenize.foreign.parquet import ParquetLayout
from marin.processing.tokenize.manifest import MANIFEST_FILE, MARIN_LAYOUT

LAYOUTS: tuple[Layout, ...] = (
    MegatronLayout(),
    DatatroveLayout(),
    LlmcLayout(),
    NanogptLayout(),
    ArrowLayout(),
    ParquetLayout(),
)

_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class ForeignCache:
    """A cache of another tool. ``splits`` has the files of each, in reading order, as absolute paths."""

    place: Place
    layout: Layout
    splits: Mapping[str, tuple[str, ...]]

    def open(self, split: str) -> FlatStream:
        """One split. ``DataError`` if a file is absent, damaged or of a strange type."""
        if split not in self.splits:
            raise ConfigurationError(
                f"the token cache {self.place.path} has no split {split!r}; it has: {', '.join(self.splits)}"
            )
        with _readable(self.place):
            return FlatStream(self.place.path, split, self.layout.open(self.splits[split]))

    def tokenizer(self) -> str | None:
        """What its side files say of the tokenizer that made it."""
        with _readable(self.place):
            return self.layout.tokenizer([file for files in self.splits.values() for file in files])


@contextlib.contextmanager
def _readable(place: Place) -> Generator[None]:
    try:
        yield
    except OSError as fault:
        raise DataError(
            f"{fault.filename or place.path} can't be read: {fault.strerror or fault}; mend that, or copy it anew"
        ) from fault


def recognise(path: str, layout: str | None = None) -> ForeignCache:
    """The cache at ``path``, a folder or one file. ``layout``: what it is, where its files alone don't tell.

    Raises ``ConfigurationError`` if it is of no known layout, or may be of several.
    """
    place = look_at(path)
    asked = [one for one in LAYOUTS if layout in (None, one.name)]
    if not asked:
        known = ", ".join(one.name for one in LAYOUTS)
        raise ConfigurationError(f"layout={layout!r} of {path} is not known: give one of {MARIN_LAYOUT}, {known}")
    with _readable(place):
        found = [(one, evidence) for one in asked if (evidence := one.recognise(place)) is not None]
    if not found:
        raise _nothing_known(place, asked)
    if len(found) > 1:
        raise _ambiguous(place, found)
    chosen, evidence = found[0]
    splits = {
        split: tuple(place.absolute(name) for name in names) for split, names in by_split(place, evidence.names).items()
    }
    return ForeignCache(place=place, layout=chosen, splits=splits)


def _nothing_known(place: Place, asked: list[Layout]) -> ConfigurationError:
    lies = ", ".join(place.names[:_SHOWN]) or "nothing"
    more = f" and {len(place.names) - _SHOWN} more" if len(place.names) > _SHOWN else ""
    ours = [f"{MANIFEST_FILE} (Marin)"] if len(asked) > 1 else []
    looked = ", ".join([*ours, *(one.looks_for for one in asked)])
    return ConfigurationError(
        f"{place.path} holds no token cache that is known. Looked for {looked}. There lies {lies}{more}. "
        "Give the folder in which the token files lie, or one of them"
    )


def _ambiguous(place: Place, found: list[tuple[Layout, Evidence]]) -> ConfigurationError:
    reasons = "; ".join(f"{layout.name}: {evidence.because}" for layout, evidence in found)
    return ConfigurationError(
        f"{place.path} may hold caches of several layouts ({reasons}): give the folder or file of one of them, "
        f"or say which, as in config={{'layout': {found[0][0].name!r}}}"
    )
