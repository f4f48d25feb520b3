"""One saved state of a training as a folder: files of arrays, and a marker that is written last.

``step-000001200/state-00000-of-00001.safetensors`` holds the arrays, one such file for each process that saved.
``complete.json``, the marker, lists them with size and digest, and has the recipe of the training. Before there was a
``format`` in the marker (format 1) there was one file, ``state.safetensors``; it is still read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from marin.errors import CheckpointError, NewerCheckpointError
from marin.processing.durable import write_whole
from marin.training.tensor_file import NamedArrays, read_tensors, write_tensors

FORMAT = 2
"""Of what is written here. Change it when an older Marin would misread the folder."""

MARKER_FILE = "complete.json"


@dataclass(frozen=True, kw_only=True)
class StateFile:
    """One file of arrays."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Marker:
    """Written last: a folder without it is not a checkpoint. ``recipe`` is what must not differ when going on."""

    format: int
    step: int
    files: tuple[StateFile, ...]
    recipe: dict[str, Any]


def write_state_file(folder: str, arrays: NamedArrays, *, process: int, processes: int) -> StateFile:
    """What ``process`` of ``processes`` has of the state, in a file of the ``folder``."""
    name = _file_name(process, processes)
    written = write_tensors(os.path.join(folder, name), arrays)
    return StateFile(name=name, bytes=written.bytes, sha256=written.sha256)


def write_marker(folder: str, *, step: int, files: Sequence[StateFile], recipe: Mapping[str, Any]) -> None:
    """Make ``folder`` a checkpoint. Raises ``CheckpointError`` if a file is not there as its process has written it."""
    for entry in files:
        path = os.path.join(folder, entry.name)
        found = os.path.getsize(path) if os.path.isfile(path) else None
        if found != entry.bytes:
            raise CheckpointError(
                f"{path} has {'no' if found is None else found} bytes, and a host has written {entry.bytes}: the hosts "
                "do not share this folder"
            )
    marker = Marker(format=FORMAT, step=step, files=tuple(files), recipe=dict(recipe))
    write_whole(os.path.join(folder, MARKER_FILE), msgspec.json.encode(marker))


def read_marker(folder: str) -> Marker:
    """What the folder says that it is. ``CheckpointError`` tells why it is none; ``NewerCheckpointError``, who can."""
    try:
        with open(os.path.join(folder, MARKER_FILE), "rb") as file:
            content = file.read()
        number = msgspec.json.decode(content, type=_Format).format
        if number > FORMAT:
            raise NewerCheckpointError(
                f"{folder} was written by a newer Marin, in format {number} (this one reads up to {FORMAT}): "
                "go on with that Marin, or move the folder away"
            )
        return msgspec.json.decode(content, type=_OldMarker).renewed() if number < FORMAT else _decoded(content)
    except FileNotFoundError:
        raise CheckpointError(f"it has no {MARKER_FILE}, so it was not finished") from None
    except msgspec.DecodeError as fault:
        raise CheckpointError(f"its {MARKER_FILE} can't be read: {fault}") from fault


def check_files(folder: str, marker: Marker) -> None:
    """Raise ``CheckpointError`` unless the files hold what was written."""
    for entry in marker.files:
        path = os.path.join(folder, entry.name)
        if not os.path.isfile(path) or os.path.getsize(path) != entry.bytes or _sha256(path) != entry.sha256:
            raise CheckpointError(f"its {entry.name} is not what was written")


def read_checkpoint(folder: str, prefix: str = "") -> NamedArrays:
    """The arrays of a complete checkpoint, checked; with ``prefix="params."`` the parameters alone, under their names.

    Raises ``CheckpointError`` if it is damaged.
    """
    try:
        marker = read_marker(folder)
        check_files(folder, marker)
    except NewerCheckpointError:
        raise
    except CheckpointError as fault:
        raise CheckpointError(f"{folder} is no whole checkpoint: {fault}; take another") from fault
    return read_files(folder, marker, prefix)


def read_files(folder: str, marker: Marker, prefix: str = "") -> NamedArrays:
    """The arrays of files that were checked."""
    arrays: NamedArrays = {}
    for entry in marker.files:
        arrays |= read_tensors(os.path.join(folder, entry.name), prefix)
    return arrays


class _Format(msgspec.Struct):
    format: int = 1


@dataclass(frozen=True, kw_only=True)
class _OldMarker:
    step: int
    bytes: int
    sha256: str
    recipe: dict[str, Any]

    def renewed(self) -> Marker:
        file = StateFile(name="state.safetensors", bytes=self.bytes, sha256=self.sha256)
        return Marker(format=1, step=self.step, files=(file,), recipe=self.recipe)


def _decoded(content: bytes) -> Marker:
    marker = msgspec.json.decode(content, type=Marker)
    own = [_file_name(process, len(marker.files)) for process in range(len(marker.files))]
    if not own or [entry.name for entry in marker.files] != own:
        raise CheckpointError(f"its {MARKER_FILE} lists files that are not its own")
    return marker


def _file_name(process: int, processes: int) -> str:
    return f"state-{process:05}-of-{processes:05}.safetensors"


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
