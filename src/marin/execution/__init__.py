"""Describe an artifact, decide whether it must be built, build it once.

Read in this order: identity, lazy, context, fingerprint, record, planning, schedule, step_runner, runner.
"""

import importlib
from typing import TYPE_CHECKING, Any

from marin.execution.apply import apply
from marin.execution.artifact import Artifact
from marin.execution.build_context import VersionCodex, build_context
from marin.execution.context import StepContext
from marin.execution.identity import ArtifactId
from marin.execution.inputs import OUT
from marin.execution.lazy import ArtifactStep
from marin.execution.options import RunOptions
from marin.execution.remote import remote

if TYPE_CHECKING:
    from marin.execution.materialize import materialized_config
    from marin.execution.runner import load, lower, plan, resolve, run

__all__ = [
    "OUT",
    "Artifact",
    "ArtifactId",
    "ArtifactStep",
    "RunOptions",
    "StepContext",
    "VersionCodex",
    "apply",
    "build_context",
    "load",
    "lower",
    "materialized_config",
    "plan",
    "remote",
    "resolve",
    "run",
]


# Describing a pipeline must not pay for running one: the runner is imported at its first use.
_ON_FIRST_USE = {
    "materialized_config": "marin.execution.materialize",
    **dict.fromkeys(("load", "lower", "plan", "resolve", "run"), "marin.execution.runner"),
}


def __getattr__(name: str) -> Any:
    if (module := _ON_FIRST_USE.get(name)) is not None:
        return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
