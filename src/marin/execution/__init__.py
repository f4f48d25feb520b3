"""Describe an artifact, decide whether it must be built, build it once.

Read in this order: identity, lazy, context, fingerprint, record, planning, schedule, step_runner, runner.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin.execution.applying import apply
    from marin.execution.artifact import Artifact
    from marin.execution.context import StepContext
    from marin.execution.identity import ArtifactId
    from marin.execution.inputs import OUT
    from marin.execution.lazy import ArtifactStep
    from marin.execution.materialize import materialized_config
    from marin.execution.options import RunOptions
    from marin.execution.remote_function import remote
    from marin.execution.runner import load, lower, plan, resolve, run
    from marin.execution.version_codex import VersionCodex, build_context

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


# Imported at their first use: describing a pipeline must not pay for running one, nor the process of a step for either.
# So none of them may be called like a module here, which would take its name.
_HOMES = {
    "OUT": "inputs",
    "Artifact": "artifact",
    "ArtifactId": "identity",
    "ArtifactStep": "lazy",
    "RunOptions": "options",
    "StepContext": "context",
    "apply": "applying",
    "materialized_config": "materialize",
    "remote": "remote_function",
    **dict.fromkeys(("VersionCodex", "build_context"), "version_codex"),
    **dict.fromkeys(("load", "lower", "plan", "resolve", "run"), "runner"),
}


def __getattr__(name: str) -> Any:
    if (module := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
