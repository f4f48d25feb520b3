"""The config that a step function would get, with readable paths: for tests that compare it with a golden file."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from marin.errors import ConfigurationError
from marin.execution.artifact import Artifact
from marin.execution.context import StepPath, check_declared, check_runtime_arg
from marin.execution.lazy import ArtifactStep
from marin.execution.recipe import check_pure

T = TypeVar("T", bound=Artifact)

READABLE_PREFIX = "/store"
"""Where the store seems to lie in a config that nobody runs with: the same on every machine."""


def materialized_config(handle: ArtifactStep[Any], *, prefix: str = READABLE_PREFIX, region: str | None = None) -> Any:
    """The config as ``handle``'s step function would get it. Builds nothing and reads nothing.

    Paths are those of the addresses below ``prefix``, so they are the same everywhere: ``output_path`` is
    ``/store/name/version``, adopted and pinned data lies where its handle says. Runtime arguments are the real ones. A
    typed artifact is of its own class, with such a path, and with text that names the field in place of each value.

    Raises what a run would raise before it calls the function, such as ``PlaceholderError`` and ``ImpureConfigError``.

    >>> poems = ArtifactStep(name="raw/poems", version="2026.07.01", run="my.poems:write")
    >>> count = ArtifactStep(name="count", run="my.poems:count", deps=(poems,),
    ...                      build_config=lambda ctx: {"poems": ctx.artifact_path(poems), "out": ctx.output_path})
    >>> materialized_config(count)
    {'poems': '/store/raw/poems/2026.07.01', 'out': '/store/count/dev'}
    """
    if handle.run is None:
        raise ConfigurationError(f"{handle.id} has no step function that could get a config: it is adopted or pinned")
    check_pure(handle)
    build_config: Any = handle.build_config
    config = None if build_config is None else build_config(_ReadableContext(handle, prefix, region))
    return {} if config is None else config


class _ReadableContext:
    """Answers as a run would, with paths that mean the same everywhere."""

    def __init__(self, step: ArtifactStep[Any], prefix: str, region: str | None) -> None:
        self._step = step
        self._ids = frozenset(dep.id for dep in step.deps)
        self.prefix = StepPath(prefix)
        self.region = region

    @property
    def output_path(self) -> StepPath:
        return self.prefix / self._step.id.address

    def artifact_path(self, dep: ArtifactStep[Any]) -> StepPath:
        check_declared(self._step, dep, self._ids)
        if dep.pin is not None:
            return StepPath(dep.pin)
        return self.prefix / dep.id.address if dep.source is None else StepPath(dep.source.path)

    def resolved(self, dep: ArtifactStep[T]) -> T:
        path = self.artifact_path(dep)
        # Not by its __init__: that may check values, and there are none.
        artifact = object.__new__(dep.artifact_type)
        for spec in dataclasses.fields(artifact):
            object.__setattr__(artifact, spec.name, path if spec.name == "path" else f"<{dep.id}.{spec.name}>")
        return artifact

    def runtime_arg(self, key: str) -> Any:
        check_runtime_arg(self._step, key)
        return self._step.runtime_args[key]
