"""A store for one test."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from marin.errors import ConfigurationError
from marin.execution.artifact import Artifact
from marin.execution.code import code_of
from marin.execution.console import reporting
from marin.execution.graph import Step
from marin.execution.lazy import ArtifactStep
from marin.execution.naming import class_name
from marin.execution.observe import recorded_fingerprint
from marin.execution.options import RunOptions, run_options
from marin.execution.record import (
    Build,
    Record,
    State,
    encode_record,
    new_build_id,
    record_path,
    timestamp,
)
from marin.execution.runner import load
from marin.execution.step_body import execute
from marin.storage.format import ensure_format
from marin.storage.local import LocalStore
from marin.storage.prefix import PREFIX_VARIABLE
from marin.testing.recorder import RecordingReporter
from marin.testing.stand_ins import Files, check_files, write_files

T = TypeVar("T", bound=Artifact)


@dataclass(frozen=True)
class TemporaryStore:
    """A store that ``run``, ``resolve``, ``load`` and ``plan`` use while it is open.

    ``path`` is its prefix, ``options`` what runs get that are given none, ``told`` what they told.
    """

    path: Path
    options: RunOptions
    told: RecordingReporter = field(default_factory=RecordingReporter)

    @property
    def made(self) -> list[str]:
        """``name@version`` of what was built and adopted since the store was opened, in order."""
        return self.told.made

    def put(self, handle: ArtifactStep[T], artifact: T, *, files: Files | None = None) -> T:
        """Make ``artifact`` with ``files`` the finished artifact of ``handle``, as if its step had been run.

        So that what you test finds its input without the work of making it. The artifact's own ``verify`` is called.
        Raises ``ConfigurationError`` for a mutable version, which a run would build anew.
        """
        if handle.id.is_mutable or handle.run is None:
            why = f"{handle.version} versions are rebuilt at every run" if handle.run else "it is adopted or pinned"
            raise ConfigurationError(
                f"{handle.id} can't be put into the store: {why}. Give the handle a fixed version and a step function"
            )
        given: Any = artifact
        if isinstance(given, ArtifactStep):
            raise ConfigurationError(
                f"{handle.id}: put was given the handle {given!r} where the artifact belongs: "
                f"give what its step returns, such as {handle.artifact_type.__name__}(...)"
            )
        check_files(files or {})
        store = LocalStore(str(self.path), durable=False)
        ensure_format(store)
        store.make_folder(handle.id.address)
        try:
            build = _build(handle, artifact, files or {}, store.url(handle.id.address))
        except BaseException:
            store.delete(handle.id.address)
            raise
        record = Record(name=handle.name, version=handle.version, state=State.BUILT, build=build)
        store.write(record_path(handle.id.address), encode_record(record))
        return load(handle, options=self.options)


@contextlib.contextmanager
def temporary_store(
    path: str | os.PathLike[str] | None = None, *, options: RunOptions | None = None
) -> Generator[TemporaryStore]:
    """Inside, runs use an empty store of their own, show nothing, and do not wait for the disk.

    Steps in processes of their own, scripts and ``marin`` use it too: ``MARIN_PREFIX`` and ``MARIN_DURABLE`` are set
    meanwhile. It is removed at the end, or kept at ``path`` if that is given. ``options`` says how else to run.

    >>> from marin.execution import resolve
    >>> from marin.testing import a_step
    >>> with temporary_store() as store:
    ...     poems = resolve(a_step(files={"poems.txt": "Roses are red."}))
    ...     store.made
    ['raw/poems@2026.07.01']
    """
    with contextlib.ExitStack() as stack:
        place = (
            Path(path) if path is not None else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="marin-")))
        )
        place = place.absolute()
        store = TemporaryStore(place, replace(options or RunOptions(), prefix=str(place), durable=False))
        stack.enter_context(_environment({PREFIX_VARIABLE: str(place), "MARIN_DURABLE": "0"}))
        stack.enter_context(run_options(store.options))
        stack.enter_context(reporting(lambda: store.told))
        yield store


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _build(step: Step, artifact: Artifact, files: Files, folder: str) -> Build:
    write_files(Path(folder), files)
    done = execute(lambda given: given, artifact, artifact_type=step.artifact_type, output_path=folder)
    now = datetime.datetime.now(datetime.UTC)
    return Build(
        build_id=new_build_id(now),
        data=".",
        fingerprint=recorded_fingerprint(step),
        artifact_type=class_name(step.artifact_type),
        result=done.result,
        manifest=done.manifest,
        started=timestamp(now),
        finished=timestamp(now),
        seconds=0.0,
        provenance={"made_by": "marin.testing"},
        code=code_of(step.run) if step.run is not None else None,
    )
