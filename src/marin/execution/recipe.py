"""What of a step is its recipe: config, step function, artifact type, dependencies by ``name@version``, adopted source.

Name, version, pin, runtime arguments, resources and where the step runs are not in it.
"""

from __future__ import annotations

import dataclasses
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from marin.errors import ConfigurationError, FingerprintError, ImpureConfigError, MarinError
from marin.execution.applied import AppliedFunction
from marin.execution.context import PlaceholderContext
from marin.execution.drift import compare
from marin.execution.encoding import JSON, encode, encode_fields, refuse_handle
from marin.execution.fingerprint import SCHEME, Fingerprint, digest
from marin.execution.naming import class_name, find, function_name
from marin.execution.record_fields import Field
from marin.execution.redaction import redacted_payload
from marin.execution.remote_function import RemoteFunction

if TYPE_CHECKING:
    from marin.execution.lazy import ArtifactStep


def recipe_fingerprint(step: ArtifactStep[Any]) -> Fingerprint:
    """The fingerprint of ``step``'s recipe, taken anew.

    Raises ``FingerprintError`` with the path to a value without a stable encoding, and what ``recipe_payload`` raises.
    """
    payload = recipe_payload(step)
    return Fingerprint(scheme=SCHEME, digest=digest(payload), payload=payload)


def recipe_payload(step: ArtifactStep[Any]) -> dict[str, JSON]:
    """The typed JSON of ``step``'s recipe. Parts that a step does not have are left out.

    Raises ``ConfigurationError`` if its ``build_config`` fails; errors of Marin pass as they are.
    """
    try:
        return _payload(step)
    except FingerprintError as fault:
        raise FingerprintError(f"{step.id} (made at {step.made_at}): {fault}") from fault


def _payload(step: ArtifactStep[Any]) -> dict[str, JSON]:
    payload: dict[str, JSON] = {
        "artifact_type": class_name(step.artifact_type),
        "deps": list[JSON](sorted({str(dep.id) for dep in step.deps})),
    }
    if step.run is not None:
        payload["function"] = _function(step.run)
        if _is_applied(step.run):
            payload["called_with"] = "inputs"
    payload |= _changeable(step)
    if step.source is not None:
        payload["source"] = {"path": step.source.path, "config": encode(dict(step.source.config), "source.config")}
    return payload


def _changeable(step: ArtifactStep[Any]) -> dict[str, JSON]:
    """The parts of the payload that the step's own code makes, or may change while it makes them."""
    parts: dict[str, JSON] = {}
    if step.run is not None and (config := _config(step)) is not None:
        parts["config"] = config
    if (own := _own_fields(step)) and (fields := encode_fields(own, "fields", handle=_handle)):
        parts["fields"] = fields
    return parts


def check_pure(step: ArtifactStep[Any]) -> None:
    """Raise ``ImpureConfigError``, naming what differs, unless ``build_config`` gives the same config as before.

    "Before" is when the fingerprint was taken, at the latest now.
    """
    fingerprint = step.fingerprint()
    # Only what build_config can change: naming the step function anew would cost as much as all the rest.
    now = {**fingerprint.payload, **_changeable(step)}
    if digest(now) != fingerprint.digest:
        changes = compare(redacted_payload(fingerprint.payload), redacted_payload(now))
        listed = "\n".join(f"  {change}" for change in changes[:5]) or "  a secret, which is not shown"
        raise ImpureConfigError(
            f"build_config of {step.id} (made at {step.made_at}) gave two different configs:\n{listed}\n"
            "Leave out what changes by itself (time, random numbers, the environment), or take it in the step function"
        )


def _config(step: ArtifactStep[Any]) -> JSON:
    build_config: Any = step.build_config
    if build_config is None:
        return None
    try:
        config = build_config(PlaceholderContext(step))
    except MarinError:
        raise
    except Exception as fault:
        raise ConfigurationError(
            f"build_config of {step.id} (made at {step.made_at}) failed: {type(fault).__name__}: {fault}"
        ) from fault
    return encode(config, "config", handle=_refuse_input if _is_applied(step.run) else refuse_handle)


def _is_applied(run: Any) -> bool:
    return isinstance(run.function if isinstance(run, RemoteFunction) else run, AppliedFunction)


def _function(run: Any) -> JSON:
    function = run.function if isinstance(run, RemoteFunction) else run
    applied = isinstance(function, AppliedFunction)
    function = function.function if applied else function
    if isinstance(function, str):
        return function_name(function)
    refuse = _refuse_input if applied else refuse_handle
    if not isinstance(function, FunctionType):
        return _by_name(encode(function, "function", handle=refuse))
    name = _NAMES.get(function)
    # A name stays with its function only as long as it leads there.
    if name is None or find(function.__module__, function.__qualname__) is not function:
        name = _by_name(encode(function, "function", handle=refuse))
        if isinstance(name, str):
            _NAMES[function] = name
    return name


_NAMES: WeakKeyDictionary[FunctionType, str] = WeakKeyDictionary()
"""What functions are called: thousands of steps may share one."""


def _by_name(encoded: JSON) -> JSON:
    """What a module has under its name is the same as that name given as text."""
    if isinstance(encoded, dict) and len(encoded) == 1:
        return encoded.get("function", encoded.get("class", encoded))
    return encoded


def _own_fields(step: ArtifactStep[Any]) -> list[Field]:
    own = step.own_fields()
    metadata = {spec.name: spec.metadata for spec in dataclasses.fields(step)} if own else {}
    return [(name, value, metadata.get(name, {})) for name, value in own.items()]


def _refuse_input(handle: ArtifactStep[Any]) -> JSON:
    del handle
    raise FingerprintError(
        "is a handle where apply does not look for one: pass it as an input of its own, "
        "or inside lists, tuples, dicts, sets and dataclasses"
    )


def _handle(handle: ArtifactStep[Any]) -> JSON:
    """A subclass may hold its dependencies in fields of its own."""
    return {"handle": str(handle.id)}
