"""What a test says about a plan. Each looks into the store as ``plan`` does, and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marin.errors import ConfigurationError
from marin.execution.lazy import ArtifactStep
from marin.execution.planning import Decision, Plan, PlannedStep
from marin.execution.runner import plan


def plan_reasons(*handles: ArtifactStep[Any]) -> dict[str, str]:
    """What a run would do with each step, and why: ``build: not built yet``. By ``name@version``.

    Times are left out, so that it can be compared: what is served as it was recorded is just ``serve``, and otherwise
    what has changed follows: ``serve: config.lr: 0.003 → 0.006``.
    """
    return {str(id_): _reason(step) for id_, step in _planned(handles).steps.items()}


def assert_builds(*handles: ArtifactStep[Any]) -> None:
    """A run of ``handles`` would make each of them, whatever else it makes."""
    __tracebackhide__ = True
    planned = _planned(handles)
    making = {step.id for step in planned.to_make}
    served = [handle.id for handle in handles if handle.id not in making]
    if served:
        raise AssertionError(f"a run would not build {', '.join(map(str, served))}:\n{_listed(planned)}")


def assert_cached(*handles: ArtifactStep[Any]) -> None:
    """A run of ``handles`` would make nothing: all that they need is served. Drift is told, not failed."""
    __tracebackhide__ = True
    planned = _planned(handles)
    wrong = [*planned.to_make, *planned.of(Decision.REFUSE)]
    if wrong:
        raise AssertionError(f"a run would not serve {', '.join(str(step.id) for step in wrong)}:\n{_listed(planned)}")


def _planned(handles: Sequence[ArtifactStep[Any]]) -> Plan:
    if not handles:
        raise ConfigurationError("nothing was asked about: give the handles whose plan is meant")
    return plan(*handles)


def _listed(planned: Plan) -> str:
    return "\n".join(f"  {id_}: {_reason(step)}" for id_, step in planned.steps.items())


def _reason(planned: PlannedStep) -> str:
    told = [str(change) for change in planned.changes]
    if planned.code_changes:
        told.append(f"code changed: {', '.join(map(str, planned.code_changes))}")
    told += map(str, planned.notes)
    if planned.decision is not Decision.SERVE:
        told.insert(0, str(planned.error) if planned.error is not None else planned.reason)
    return f"{planned.decision.value}: {'; '.join(told)}" if told else planned.decision.value
