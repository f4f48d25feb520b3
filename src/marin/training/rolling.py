"""The saved states of one training, so that a new process goes on with the same bits.

Rolling ones lie in ``resume/`` of the output while the training lasts, permanent ones in ``checkpoints/`` for good.
Each is written under a temporary name and renamed once it is whole and on the disk; either kind can be gone on with.

A little over 300 lines: finding, writing and removing go by the same names and the same rules of what may be removed.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from marin.errors import CheckpointError, NewerCheckpointError, NonFiniteLossError, StoreError
from marin.processing.durable import commit_file, sync
from marin.storage.faults import translated_faults
from marin.training.checkpoint_files import (
    Marker,
    StateFile,
    check_files,
    read_files,
    read_marker,
    write_marker,
    write_state_file,
)
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.hosts import Hosts, OneHost, everywhere
from marin.training.recipe_differences import differences
from marin.training.tensor_file import NamedArrays

ROLLING_FOLDER = "resume"
"""Inside the output folder while the training lasts; not part of the finished artifact."""

PERMANENT_FOLDER = "checkpoints"
"""Inside the output folder, and of the finished artifact."""

_NAME = re.compile(r"step-(\d+)")
_UNFINISHED, _REMOVED = ".unfinished", ".removed"
_TEMPORARY = re.compile(r"step-\d+\.(unfinished|removed)")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Place:
    step: int
    permanent: bool


class RollingCheckpoints:
    """Checkpoints of the training that writes to ``output``. Ask for ``newest`` first: it tells the good ones apart.

    ``recipe`` is what must not differ between two halves of the training; ``told`` is the same without what need not be
    in a checkpoint, such as a field that was added later and is at its default. One thread at a time may call ``save``.

    Of several ``hosts`` each asks and saves as the others do; ``save`` takes the arrays that are its own to write.
    """

    def __init__(
        self,
        output: str,
        recipe: Mapping[str, Any],
        policy: CheckpointPolicy,
        *,
        told: Mapping[str, Any] | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self._output, self._policy = output, policy
        self._hosts = hosts or OneHost()
        self._kept_permanent: set[int] | None = None  # by steps; known to all hosts alike
        self._recipe: dict[str, Any] = _as_read(recipe)
        self._told: dict[str, Any] = self._recipe if told is None else _as_read(told)
        self._newest: _Place | None = None
        self._skipped = set[_Place]()

    @property
    def newest_step(self) -> int | None:
        """The step of the newest complete one, as far as this process knows."""
        return None if self._newest is None else self._newest.step

    def newest(self) -> tuple[int, NamedArrays] | None:
        """Step and state of the newest complete checkpoint, ``None`` if none was ever finished.

        Names those that it skips, and removes what an interrupted save left. Raises ``CheckpointError`` if all are
        damaged, or if the newest was made under another recipe, ``NewerCheckpointError`` if by a newer Marin.
        """
        found = self._found() if self._hosts.index == 0 else None
        if self._hosts.count > 1:
            kept = [place.step for place in self._places() if place.permanent and place not in self._skipped]
            told = None if found is None else [found[0].step, found[0].permanent]
            told, kept = self._hosts.exchange("newest checkpoint", [told, kept])[0]
            self._kept_permanent = set(kept)
            if told is not None and found is None:
                place = _Place(*told)
                found = place, _checked_by_others(self._path(place))
        if found is None:
            return None
        self._newest, marker = found
        return self._newest.step, read_files(self._path(self._newest), marker)

    def _found(self) -> tuple[_Place, Marker] | None:
        removed, faults = self._remove_temporary(), list[str]()
        for place in self._places():
            path = self._path(place)
            try:
                with translated_faults(path, writing=False):
                    marker = _checked_marker(path, place.step)
            except NewerCheckpointError:
                raise
            except CheckpointError as fault:
                _LOG.warning("skipped checkpoint %s: %s", path, fault)
                self._skipped.add(place)
                faults.append(f"{path}: {fault}")
                continue
            self.check_recipe(path, marker.recipe)
            return place, marker
        if faults:
            raise CheckpointError(
                f"no whole checkpoint of this training is left ({'; '.join(faults)}). It has run before and does not "
                f"begin anew by itself: bring one back, or remove {self._folders()} to begin at step 0"
            )
        if removed:
            _LOG.warning("no checkpoint in %s was finished: the training begins at step 0", self._output)
        return None

    def has_permanent(self, step: int) -> bool:
        """Whether the state after ``step`` updates is kept for good already."""
        if self._kept_permanent is not None:
            return step in self._kept_permanent
        place = _Place(step, permanent=True)
        return place not in self._skipped and os.path.isdir(self._path(place))

    def save(
        self,
        step: int,
        arrays: NamedArrays,
        *,
        permanent: bool = False,
        before_marking: Callable[[], None] = lambda: None,
    ) -> str:
        """Keep ``arrays`` as the state after ``step`` updates; then remove older ones. On failure those stay.

        Raises ``NonFiniteLossError`` for numbers that are not finite, and the ``StoreError`` of a disk that is full or
        can't be written.
        """
        place = _Place(step, permanent)
        target = self._path(place)
        # A step has one state: writing it anew would put the good one at risk.
        if permanent and self.has_permanent(step):
            return target
        if not permanent and step == self.newest_step:
            return self.describe_newest()
        unfinished = target + _UNFINISHED
        try:
            self._write(place, unfinished, arrays, before_marking)
        except (NonFiniteLossError, StoreError) as fault:
            self._remove_unfinished(unfinished)
            rest = (
                f"{unfinished} is left, half written" if os.path.exists(unfinished) else "Nothing half written is left"
            )
            raise type(fault)(
                f"the state after step {step} was not saved: {fault}. {rest}. "
                f"Last good checkpoint: {self.describe_newest()}"
            ) from fault
        except BaseException:
            self._remove_unfinished(unfinished)
            raise
        self._newest = place
        if permanent and self._kept_permanent is not None:
            self._kept_permanent.add(step)
        if self._hosts.index == 0:
            self._remove_others()
        return target

    def _write(self, place: _Place, unfinished: str, arrays: NamedArrays, before_marking: Callable[[], None]) -> None:
        """Each host its file; host 0 begins, and makes a checkpoint of it once all are there."""
        target, hosts = self._path(place), self._hosts

        def begin() -> None:
            if hosts.index == 0:
                self._make_empty(unfinished)

        def write() -> StateFile:
            return write_state_file(unfinished, arrays, process=hosts.index, processes=hosts.count)

        def end() -> None:
            if hosts.index == 0:
                before_marking()
                write_marker(unfinished, step=place.step, files=files, recipe=self._recipe)
                self._set_aside(place)
                commit_file(unfinished, target)

        everywhere(hosts, "save begins", begin, path=target)
        written = everywhere(hosts, "save, files", write, path=target)
        files = [msgspec.convert(each, StateFile) for each in written]
        everywhere(hosts, "save ends", end, path=target)

    def _remove_unfinished(self, folder: str) -> None:
        if self._hosts.index == 0:
            shutil.rmtree(folder, ignore_errors=True)

    def describe_newest(self) -> str:
        """Where the newest complete one lies, for messages."""
        return "none yet" if self._newest is None else self._path(self._newest)

    def clear(self) -> None:
        """Remove the rolling ones: the training is over."""
        shutil.rmtree(os.path.join(self._output, ROLLING_FOLDER), ignore_errors=True)

    def check_recipe(self, path: str, recipe: Mapping[str, Any]) -> None:
        """Raise ``CheckpointError`` with the keys in which ``recipe``, of what lies at ``path``, is not this one."""
        if found := list(differences(recipe, self._recipe, self._told)):
            raise CheckpointError(
                f"{path} was made under other settings: {'; '.join(found)}. Restore them to go on, or give the "
                f"training with the new ones a version of its own. To begin at step 0 under this one, remove "
                f"{self._output}"
            )

    def _remove_others(self) -> None:
        """Remove what is older than the newest few; what was skipped is not one of those, whatever its step."""
        skipped, self._skipped = self._skipped - {self._newest}, set()
        places = [place for place in self._places() if place not in skipped]
        rolling = [place for place in places if not place.permanent]
        permanent = [place for place in places if place.permanent]
        unneeded = [*rolling[self._policy.keep :], *permanent[self._policy.keep_permanent or len(permanent) :]]
        for place in (*skipped, *unneeded):
            try:
                self._set_aside(place)
            except (OSError, NewerCheckpointError) as fault:  # the new one is whole: an old one that stays does no harm
                _LOG.warning("%s is not needed any more, but was not removed: %s", self._path(place), fault)

    def _set_aside(self, place: _Place) -> None:
        """Remove what lies there, if anything, in one step for whoever reads it. Never that of a newer Marin."""
        path = self._path(place)
        if not os.path.lexists(path):
            return
        try:
            read_marker(path)
        except NewerCheckpointError:
            raise
        except CheckpointError:
            pass  # of no use to anybody
        aside = path + _REMOVED
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(path, aside)
        shutil.rmtree(aside)

    def _make_empty(self, folder: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        parent = os.path.dirname(folder)
        if not os.path.isdir(parent):
            os.makedirs(parent)
            sync(os.path.dirname(parent))
        os.mkdir(folder)

    def _remove_temporary(self) -> list[str]:
        """Remove what an earlier process of this training did not finish, or did not finish removing."""
        found = [
            os.path.join(folder, name)
            for folder in map(self._folder, (False, True))
            for name in _names(folder)
            if _TEMPORARY.fullmatch(name)
        ]
        for path in found:
            with translated_faults(path, writing=True):
                shutil.rmtree(path)
        unfinished = [path for path in found if path.endswith(_UNFINISHED)]
        for path in unfinished:
            _LOG.warning("removed %s: saving it was interrupted", path)
        return unfinished

    def _places(self) -> Iterator[_Place]:
        """Where checkpoints lie, the newest first."""
        found = [
            _Place(int(match[1]), permanent)
            for permanent in (False, True)
            for name in _names(self._folder(permanent))
            if (match := _NAME.fullmatch(name))
        ]
        return iter(sorted(found, key=lambda place: place.step, reverse=True))

    def _folder(self, permanent: bool) -> str:
        return os.path.join(self._output, PERMANENT_FOLDER if permanent else ROLLING_FOLDER)

    def _folders(self) -> str:
        """Those that hold checkpoints, for messages."""
        return " and ".join(folder for folder in map(self._folder, (False, True)) if _names(folder))

    def _path(self, place: _Place) -> str:
        return os.path.join(self._folder(place.permanent), f"step-{place.step:09}")


def _checked_marker(path: str, step: int) -> Marker:
    """The marker of a checkpoint that is as it was written. Raises ``CheckpointError`` saying what is not."""
    try:
        marker = read_marker(path)
        check_files(path, marker)
    except OSError as fault:
        if fault.errno == errno.EIO:
            raise CheckpointError(f"the disk can't read it any more ({fault})") from fault
        raise
    if marker.step != step:
        raise CheckpointError(f"its marker is that of step {marker.step}")
    return marker


def _checked_by_others(path: str) -> Marker:
    """The marker of a checkpoint that host 0 has looked at. Raises ``CheckpointError`` if it is not seen here."""
    try:
        return read_marker(path)
    except CheckpointError as fault:
        raise CheckpointError(f"host 0 goes on from {path}, which is not the same here: {fault}") from fault


def _names(folder: str) -> list[str]:
    with translated_faults(folder, writing=False):
        return os.listdir(folder) if os.path.isdir(folder) else []


def _as_read(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read back: keys are text, tuples are lists."""
    return msgspec.json.decode(msgspec.json.encode(recipe))
