"""Whether a plan can be carried out on this machine: told before anything runs."""

from __future__ import annotations

from marin.errors import DeviceNotFoundError, MarinError, NotEnoughResourcesError, RefusedError
from marin.execution.identity import ArtifactId
from marin.execution.planning import Plan
from marin.execution.remote_call import check_sendable
from marin.execution.remote_function import RemoteFunction
from marin.execution.step_process import check_disk
from marin.executors.executor import Executor
from marin.storage.local import LocalStore


def check_runnable(planned: Plan, executor: Executor, store: LocalStore) -> None:
    """Raise before anything runs if a step can't be served or built, can't be sent, or asks for what is not there."""
    errors = [*planned.errors, *unrunnable(planned, executor, store)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        listed = "".join(f"\n  {error}" for error in errors)
        raise RefusedError(f"{len(errors)} steps can't be run as they are:{listed}") from errors[0]


def unrunnable(planned: Plan, executor: Executor, store: LocalStore) -> list[MarinError]:
    """Of the steps that would be built: which can't be sent to a process, or ask for what is not there."""
    errors: list[MarinError] = []
    for step in planned.to_make:
        if isinstance(step.step.run, RemoteFunction):
            try:
                _preflight(step.id, step.step.run, executor)
                check_disk(step.step, store.url(step.address))
                check_sendable(str(step.id), step.step.run.function)
            except MarinError as fault:
                errors.append(fault)
    return errors


def _preflight(id_: ArtifactId, run: RemoteFunction, executor: Executor) -> None:
    try:
        executor.preflight(run.resources)
    except (DeviceNotFoundError, NotEnoughResourcesError) as fault:
        raise type(fault)(f"{id_}: {fault}") from None
