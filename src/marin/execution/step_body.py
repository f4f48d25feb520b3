"""What happens inside a step, in whichever thread or process it runs: call, check, measure."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from marin.errors import ConfigurationError, OutputError
from marin.execution.artifact import Artifact, at_path
from marin.execution.manifest import MANIFEST_FILE, ManifestSummary, write_manifest
from marin.execution.step_function import call_fault
from marin.storage.store import is_ours

A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A step that has done its work: the JSON of its artifact's fields, and what it wrote."""

    result: dict[str, Any]
    manifest: ManifestSummary
    listed_at: int = 0
    """When the files were listed, in nanoseconds of the clock that files have their times from."""


def execute(
    function: Callable[[Any], Any],
    config: Any,
    *,
    artifact_type: type[Artifact],
    output_path: str,
    resumes: bool = False,
) -> Completed:
    """Call ``function(config)``, check what it returns and what it wrote, and list that.

    ``resumes``: there may be something in ``output_path`` that an earlier attempt left.

    Raises ``OutputError`` if it returns something else than an ``artifact_type`` (``None`` will do if that has no
    fields to fill), if the artifact's own ``verify`` refuses what was written, and for files that can't be published;
    ``StoreError``, such as ``StorageFullError``, if the manifest can't be written;
    ``ConfigurationError`` for a function that does not take a config alone. What ``function`` raises passes through.
    """
    if (fault := call_fault(function)) is not None:  # of one that was given by name, seen only now
        raise ConfigurationError(f"the step function {fault}. Take the one, or use apply(name, function, ...)")
    if resumes:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{output_path}/{MANIFEST_FILE}")
    artifact = _checked_artifact(_call(function, config), artifact_type)
    _check_folder(output_path)
    try:
        at_path(artifact, output_path).verify()
    except Exception as fault:
        raise OutputError(
            f"the finished build was refused: {type(artifact).__name__}.verify says {type(fault).__name__}: {fault}"
        ) from fault
    result, listed_at = _result(artifact, artifact_type), time.time_ns()
    return Completed(result=result, manifest=write_manifest(output_path, refuse=_is_reserved), listed_at=listed_at)


def _is_reserved(name: str) -> bool:
    return is_ours(name) or name == MANIFEST_FILE


def _result(artifact: Artifact, artifact_type: type[Artifact]) -> dict[str, Any]:
    if type(artifact) is Artifact:
        return {}  # so that the process of a step without results is spared the import below
    from marin.execution.results import encode_result  # noqa: PLC0415

    return encode_result(artifact, artifact_type)


def _call(function: Callable[[Any], Any], config: Any) -> Any:
    """``function(config)``. A child that it forks, and that comes back here as well, is not the step: it ends."""
    process = os.getpid()
    try:
        return function(config)
    finally:
        if os.getpid() != process:
            print(
                "marin: a forked child has left the step function and is ended: let it call os._exit", file=sys.stderr
            )
            os._exit(1)


def _checked_artifact(returned: Any, artifact_type: type[A]) -> A:
    if isinstance(returned, artifact_type):
        return returned
    if returned is not None:
        raise OutputError(
            f"the step returned {type(returned).__name__}, but its artifact_type is {artifact_type.__name__}: "
            f"return {artifact_type.__name__}(...)"
        )
    required = [
        spec.name
        for spec in fields(artifact_type)
        if spec.init and spec.default is MISSING and spec.default_factory is MISSING
    ]
    if required:
        raise OutputError(
            f"the step returned None, but its artifact_type {artifact_type.__name__} needs {', '.join(required)}: "
            f"return {artifact_type.__name__}(...)"
        )
    return artifact_type()


def _check_folder(output_path: str) -> None:
    """Raise unless it is the folder that the step was given."""
    try:
        mode = os.lstat(output_path).st_mode
    except FileNotFoundError:
        raise OutputError(
            f"the step has removed its own output folder {output_path}: write into it and leave it"
        ) from None
    if not stat.S_ISDIR(mode):
        # What lies behind a link is not ours to move.
        kind = "a link" if stat.S_ISLNK(mode) else "a file"
        raise OutputError(f"the step has put {kind} in place of its output folder {output_path}: write into the folder")
