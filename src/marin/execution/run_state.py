"""What the steps of one run share."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marin.execution.artifact import Artifact
from marin.execution.code_changes import RecordedCode
from marin.execution.crew import Crew, OneHost
from marin.execution.events import Reporter
from marin.execution.graph import Step
from marin.execution.held_record import HeldRecord
from marin.execution.identity import ArtifactId
from marin.execution.lease_keeper import LeaseKeeper
from marin.execution.observe import typed_artifact
from marin.execution.options import RunOptions
from marin.execution.record import Build, Input, data_path
from marin.executors.executor import Executor
from marin.storage.store import BuildStore

TAKE_SECONDS = 5.0
"""How long a stopped run waits for leases that are just being taken; a store that hangs must not hold it up."""


class Stopped(Exception):  # not an error: the run was told to stop
    """The run was told to stop while this step waited or ran."""


@dataclass
class RunState:
    """What the steps of one run share. ``builds`` grows as steps are served and made."""

    store: BuildStore
    options: RunOptions
    prefix: str
    durable: bool
    reporter: Reporter
    executor: Executor
    keeper: LeaseKeeper
    provenance: Callable[[], dict[str, Any]]
    secrets: tuple[str, ...]
    crew: Crew = field(default_factory=OneHost)
    builds: dict[ArtifactId, Build] = field(default_factory=dict[ArtifactId, Build])
    stop: threading.Event = field(default_factory=threading.Event)
    kill: threading.Event = field(default_factory=threading.Event)
    held: dict[ArtifactId, HeldRecord] = field(default_factory=dict[ArtifactId, HeldRecord])
    gpus: dict[ArtifactId, frozenset[int]] = field(default_factory=dict[ArtifactId, frozenset[int]])
    """Which GPUs each running step should have, unless another run uses them."""
    abandon: Callable[[ArtifactId, BaseException], None] = lambda id_, fault: None
    """Go on without a step that runs in a thread: for the run, it has ended with this fault."""
    _takers: set[ArtifactId] = field(default_factory=set[ArtifactId])
    unrecorded: Collection[ArtifactId] = ()
    """What had no record when the run was planned: its lease is taken without another look."""
    steps: Mapping[ArtifactId, Step] = field(default_factory=dict[ArtifactId, Step])
    code: Mapping[ArtifactId, RecordedCode] = field(default_factory=dict[ArtifactId, RecordedCode])
    """Of what is made, as it was when the run was planned."""

    def inputs(self, step: Step) -> tuple[Input, ...]:
        """Which build of each dependency this run uses for ``step``, as it is recorded."""
        return tuple(
            Input(
                name=id_.name,
                version=id_.version,
                build_id=self.builds[id_].build_id,
                path=data_path(id_.address, self.builds[id_]),
            )
            for id_ in dict.fromkeys(dep.id for dep in step.deps)
        )

    @contextlib.contextmanager
    def taking(self, id_: ArtifactId) -> Generator[None]:
        """Between the moment a lease may be ours and the moment ``held`` says so. Raises ``Stopped`` after a stop."""
        self._takers.add(id_)
        try:
            if self.stop.is_set():
                raise Stopped
            yield
        finally:
            self._takers.discard(id_)

    def wait_for_takers(self) -> None:
        """After a stop: until ``held`` has every lease that was taken."""
        deadline = time.monotonic() + TAKE_SECONDS
        while self._takers and time.monotonic() < deadline:
            time.sleep(0.005)

    def artifact(self, id_: ArtifactId) -> Artifact:
        """The typed artifact that this run uses for ``id_``."""
        build = self.builds[id_]
        step = self.steps[id_]
        artifact = typed_artifact(step, build)
        object.__setattr__(artifact, "path", self.path(id_))  # it was made just now, and is nobody's yet
        return artifact

    def path(self, id_: ArtifactId) -> str:
        """Where the data that this run uses for ``id_`` lies."""
        build = self.builds[id_]
        place = data_path(id_.address, build)
        return place if build.source is not None else self.store.url(place)
