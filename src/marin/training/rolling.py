"""Rolling checkpoints: the whole state of a training, so that a new process goes on with the same bits."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from marin.errors import CheckpointError
from marin.processing.durable import write_whole
from marin.training.arrays import NamedArrays, load_arrays, save_arrays

KEEP = 2
"""How many are kept: if the newest turns out to be damaged, there is one more."""

STATE_FILE = "state.safetensors"
MARKER_FILE = "complete.json"

_NAME = re.compile(r"step-(\d+)")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Marker:
    """Written last: a folder without it is not a checkpoint. ``recipe`` is what must not differ when going on."""

    step: int
    bytes: int
    sha256: str
    recipe: dict[str, Any]


class RollingCheckpoints:
    """Checkpoints of one training in ``folder``. Ask for ``newest`` first: it tells the good ones from the others."""

    def __init__(self, folder: str, recipe: Mapping[str, Any]) -> None:
        self._folder = folder
        # as it will be read back: keys are text, tuples are lists
        self._recipe: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(recipe))
        self._newest: int | None = None
        self._skipped = set[int]()
        os.makedirs(folder, exist_ok=True)

    def save(self, step: int, state: NamedArrays) -> str:
        """Keep ``state`` as that after ``step`` updates; remove older ones. On failure those stay."""
        target = self._path(step)
        if step == self._newest:  # a step has one state: writing it anew would put the good one at risk
            return target
        shutil.rmtree(target, ignore_errors=True)  # an incomplete one of this step, found and named by newest()
        os.makedirs(target)
        file = os.path.join(target, STATE_FILE)
        try:
            save_arrays(file, state)
            marker = Marker(step=step, bytes=os.path.getsize(file), sha256=_sha256(file), recipe=self._recipe)
            write_whole(os.path.join(target, MARKER_FILE), msgspec.json.encode(marker))
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        self._newest = step
        self._remove_others()
        return target

    def newest(self) -> tuple[int, NamedArrays] | None:
        """Step and state of the newest complete checkpoint; names those that it skips.

        Raises ``CheckpointError`` if that one was made under another recipe.
        """
        for step in self._steps():
            path = self._path(step)
            try:
                marker = _checked_marker(path)
            except CheckpointError as fault:
                _LOG.warning("skipped checkpoint %s: %s", path, fault)
                self._skipped.add(step)
                continue
            if differences := list(_differences(marker.recipe, self._recipe)):
                raise CheckpointError(
                    f"{path} was made under other settings: {'; '.join(differences)}. "
                    f"Restore them to go on, or remove {self._folder} to begin at step 0"
                )
            self._newest = step
            return step, load_arrays(os.path.join(path, STATE_FILE))
        if self._skipped:
            _LOG.warning("no complete checkpoint is left in %s: the training begins at step 0 again", self._folder)
        return None

    def describe_newest(self) -> str:
        """Where the newest complete one lies, for messages."""
        return "none yet" if self._newest is None else self._path(self._newest)

    def clear(self) -> None:
        """Remove all of them: the training is over."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove_others(self) -> None:
        """Remove what is older than the newest few; what was skipped is not one of those, whatever its step."""
        for step in self._skipped - {self._newest}:
            shutil.rmtree(self._path(step), ignore_errors=True)
        self._skipped.clear()
        for step in list(self._steps())[KEEP:]:
            shutil.rmtree(self._path(step))

    def _path(self, step: int) -> str:
        return os.path.join(self._folder, f"step-{step:09}")

    def _steps(self) -> Iterator[int]:
        """Steps with a folder, the newest first."""
        found = (_NAME.fullmatch(name) for name in os.listdir(self._folder))
        return iter(sorted((int(match[1]) for match in found if match), reverse=True))


def _checked_marker(path: str) -> Marker:
    try:
        with open(os.path.join(path, MARKER_FILE), "rb") as file:
            marker = msgspec.json.decode(file.read(), type=Marker)
    except FileNotFoundError:
        raise CheckpointError(f"it has no {MARKER_FILE}, so it was not finished") from None
    except msgspec.DecodeError as fault:
        raise CheckpointError(f"its {MARKER_FILE} can't be read: {fault}") from fault
    state = os.path.join(path, STATE_FILE)
    if not os.path.isfile(state) or os.path.getsize(state) != marker.bytes or _sha256(state) != marker.sha256:
        raise CheckpointError(f"its {STATE_FILE} is not what was written")
    return marker


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, f"{path}[{number}]")
    elif old != new:
        yield f"{path}: {old!r} → {new!r}"


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
