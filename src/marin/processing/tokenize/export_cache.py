"""Write a token cache as the files of another tool, so that a user can leave."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from marin.errors import ConfigurationError, DataError, OutputError
from marin.execution.artifact import Artifact, at_path
from marin.execution.progress import report
from marin.processing.durable import commit_file
from marin.processing.tokenize.foreign.bare import NanogptLayout
from marin.processing.tokenize.foreign.flat import FlatStream
from marin.processing.tokenize.foreign.layout import Layout
from marin.processing.tokenize.foreign.megatron import HEADER, MAGIC, TYPE_OF_CODE, VERSION, MegatronLayout
from marin.processing.tokenize.manifest import TOKENIZER_FILE, TRAIN, VALIDATION
from marin.processing.tokenize.open_stream import open_stream, splits_of
from marin.processing.tokenize.stream import Ints, TokenStream
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.storage.faults import translated_faults

ExportLayout: TypeAlias = Literal["megatron", "nanogpt"]

_SCRATCH = ".exporting"
_AT_ONCE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ExportedCache(Artifact):
    """What was written: the files, relative to ``path``, and the tokens of each split."""

    fingerprint_name: ClassVar[str] = "marin.ExportedCache"

    files: tuple[str, ...]
    tokens: dict[str, int]


def export_cache(
    source: TokenizedCache | str | os.PathLike[str], target: str | os.PathLike[str], *, layout: ExportLayout
) -> ExportedCache:
    """Write every split of ``source``, an artifact or the path of a cache, into the folder ``target``.

    ``megatron``: ``train.bin`` and ``train.idx``, to be given as the prefix ``target/train``. ``nanogpt``:
    ``train.bin`` and ``val.bin``, uint16 ids and nothing else. A ``tokenizer.json`` goes with them. Masks do not: there
    is no place for them. The files are read back and compared before they get their names; memory stays bounded.

    Raises ``ConfigurationError`` if files of these names are there, ``DataError`` for ids that the layout can't hold.
    """
    if layout not in _WRITERS:
        raise ConfigurationError(f"layout={layout!r}: give one of {', '.join(map(repr, _WRITERS))}")
    path, kind = (source.path, source.layout) if isinstance(source, TokenizedCache) else (os.fspath(source), None)
    writer, folder = _WRITERS[layout], os.fspath(target)
    streams = {split: open_stream(path, split, kind) for split in splits_of(path, kind)}
    stems = {split: writer.names.get(split, split) for split in streams}
    files = [f"{stem}{suffix}" for stem in stems.values() for suffix in writer.suffixes]
    tokenizer = os.path.join(path, TOKENIZER_FILE)
    if os.path.isfile(tokenizer):
        files.append(TOKENIZER_FILE)
    _check_free(folder, files)
    with translated_faults(folder, writing=True), _scratch_folder(folder) as scratch:
        for split, stream in streams.items():
            stem = os.path.join(scratch, stems[split])
            _check_written(writer.layout, f"{stem}.bin", writer.write(stream, stem))
        if os.path.isfile(tokenizer):
            shutil.copyfile(tokenizer, os.path.join(scratch, TOKENIZER_FILE))
        for file in files:
            commit_file(os.path.join(scratch, file), os.path.join(folder, file))
    tokens = {split: stream.num_tokens for split, stream in streams.items()}
    return at_path(ExportedCache(files=tuple(files), tokens=tokens), folder)


@contextlib.contextmanager
def _scratch_folder(folder: str) -> Generator[str]:
    """A folder within ``folder``, so that files can be renamed into it. What a killed export has left there is gone."""
    scratch = os.path.join(folder, _SCRATCH)
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_free(folder: str, files: list[str]) -> None:
    there = [file for file in files if os.path.lexists(os.path.join(folder, file))]
    if there:
        raise ConfigurationError(f"{folder} already holds {', '.join(there)}: give an empty folder, or remove them")


@dataclass(frozen=True, slots=True)
class _Writer:
    """How a layout is written. ``write`` makes the files of one split and returns the digest of its content.

    ``names`` are the names of splits where they differ. ``suffixes`` are in the order in which files get their names.
    """

    layout: Layout
    suffixes: tuple[str, ...]
    write: Callable[[TokenStream, str], str]
    names: dict[str, str]


def _pieces(stream: TokenStream) -> Iterator[tuple[int, int]]:
    for start in range(0, stream.num_tokens, _AT_ONCE):
        yield start, min(_AT_ONCE, stream.num_tokens - start)


def _write_megatron(stream: TokenStream, stem: str) -> str:
    code = 8 if stream.dtype.itemsize == 2 else 4
    kind = np.dtype(TYPE_OF_CODE[code])
    digest = _write_tokens(stream, f"{stem}.bin", kind)
    documents = sum(len(stream.document_ends(start, count)) for start, count in _pieces(stream))
    with open(f"{stem}.idx", "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, code, documents, documents + 1))
        for bounds in _bounds(stream):
            lengths = np.diff(bounds)
            if len(lengths) and lengths.max() > np.iinfo(np.int32).max:
                raise DataError(f"a document has {lengths.max():,} tokens, and Megatron's index has room for 2^31")
            file.write(lengths.astype("<i4").tobytes())
            digest.update(lengths.astype("<i8").tobytes())
        for bounds in _bounds(stream):
            file.write((bounds[:-1] * kind.itemsize).astype("<i8").tobytes())
        for start in range(0, documents + 1, _AT_ONCE):
            file.write(np.arange(start, min(start + _AT_ONCE, documents + 1), dtype="<i8").tobytes())
    return digest.hexdigest()


def _bounds(stream: TokenStream) -> Iterator[Ints]:
    """The ends of documents, piece by piece, each piece with the last end before it in front."""
    last = 0
    for start, count in _pieces(stream):
        bounds = np.concatenate([[last], stream.document_ends(start, count)])
        yield bounds
        last = int(bounds[-1])


def _write_nanogpt(stream: TokenStream, stem: str) -> str:
    return _write_tokens(stream, f"{stem}.bin", np.dtype("<u2")).hexdigest()


def _write_tokens(stream: TokenStream, file: str, kind: np.dtype[Any]) -> Any:
    digest, largest = hashlib.sha256(), np.iinfo(kind).max
    with open(file, "wb") as out:
        for start, count in _pieces(stream):
            ids = stream.tokens(start, count)
            if int(ids.max()) > largest:
                raise DataError(
                    f"token id {int(ids.max()):,} does not fit into {kind.name}, which this layout has: export to "
                    "'megatron', which has wider ones"
                )
            out.write(ids.astype(kind).tobytes())
            digest.update(ids.astype("<u4").tobytes())
            report(start + count, stream.num_tokens, "tokens", f"writing {os.path.basename(file)}")
    return digest


def _check_written(layout: Layout, file: str, expected: str) -> None:
    stream = FlatStream(file, TRAIN, layout.open([file]))
    stream.check()
    digest = hashlib.sha256()
    for start, count in _pieces(stream):
        digest.update(stream.tokens(start, count).astype("<u4").tobytes())
        report(start + count, stream.num_tokens, "tokens", f"checking {os.path.basename(file)}")
    if layout.name == "megatron":
        for bounds in _bounds(stream):
            digest.update(np.diff(bounds).astype("<i8").tobytes())
    if digest.hexdigest() != expected:
        raise OutputError(f"{file} does not hold what was written to it: the disk or its memory is faulty")


_WRITERS: dict[str, _Writer] = {
    "megatron": _Writer(MegatronLayout(), (".bin", ".idx"), _write_megatron, {}),
    "nanogpt": _Writer(NanogptLayout(), (".bin",), _write_nanogpt, {VALIDATION: "val"}),
}
