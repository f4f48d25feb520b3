"""The fields of an artifact as JSON, and back."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from marin.errors import ArtifactTypeError, OutputError
from marin.execution.artifact import Artifact
from marin.execution.result_types import field_fault, from_json, left_out

__all__ = ["decode_result", "encode_result", "left_out", "recordable_result", "to_json", "type_fault"]

A = TypeVar("A", bound=Artifact)


def type_fault(kind: Any) -> str | None:
    """Why ``kind`` can't be the type of an artifact, or None.

    >>> type_fault(int)
    'is not a subclass of Artifact'
    """
    if not (isinstance(kind, type) and issubclass(kind, Artifact)):
        return "is not a subclass of Artifact"
    return _class_fault(kind)


@functools.lru_cache(maxsize=256)  # a sweep makes thousands of handles of one type
def _class_fault(kind: type[Artifact]) -> str | None:
    for cls in kind.__mro__:
        if cls is Artifact:
            return field_fault(kind)
        if not issubclass(cls, Artifact) or "__dataclass_params__" in vars(cls):
            continue
        # Without fields of its own it does what the class above it does.
        annotated = [name for name, kind in inspect.get_annotations(cls).items() if "ClassVar" not in str(kind)]
        if annotated or "__init__" in vars(cls):
            declares = f"declares {annotated[0]!r}" if annotated else "has an __init__ of its own"
            return f"{declares} but is no dataclass: write @dataclass(frozen=True) above class {cls.__name__}"
    return None


def recordable_result(artifact_type: type[Artifact], result: dict[str, Any]) -> dict[str, Any]:
    """``result`` of a step as it is recorded. Raises ``ArtifactTypeError`` for what no reader could load.

    A field may hold an object of a subclass: then what the declared class has is recorded, as of the artifact itself.
    """
    artifact = decode_result(artifact_type, result, what="step's result")
    if artifact_type is Artifact or left_out(artifact, result) is None:
        return result
    return encode_result(artifact, artifact_type)


def encode_result(artifact: Artifact, artifact_type: type[Artifact] = Artifact) -> dict[str, Any]:
    """The JSON of the fields that ``artifact_type`` declares; ``Artifact`` itself means all that there are.

    Raises ``OutputError`` that names the field which is not JSON.
    """
    result: dict[str, Any] = {}
    for spec in dataclasses.fields(artifact if artifact_type is Artifact else artifact_type):
        if spec.name == "path":
            continue
        try:
            # By way of its bytes: a first run, which makes the value, and a later one, which reads it, see the same.
            value = to_json(getattr(artifact, spec.name))
            where = _not_finite(value, spec.name)
            result[spec.name] = value if where else msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError) as fault:
            raise OutputError(
                f"{type(artifact).__name__}.{spec.name} can't be kept in the record: {fault}. "
                "Fields of an artifact are JSON values or dataclasses of them"
            ) from fault
        if where:
            raise OutputError(
                f"{type(artifact).__name__}.{where} is infinite or not a number, which JSON can't hold: "
                "return None for it"
            )
    return result


def _not_finite(value: Any, path: str) -> str | None:
    """The path to a float that JSON has no form for."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if isinstance(value, dict):
        inner = ((f"{path}.{key}", each) for key, each in value.items())
    elif isinstance(value, list | tuple):
        inner = ((f"{path}[{index}]", each) for index, each in enumerate(value))
    else:
        return None
    return next((found for where, each in inner if (found := _not_finite(each, where))), None)


def to_json(value: Any) -> Any:
    """``value`` in the types of JSON. Raises ``TypeError`` or ``ValueError`` for what has no such form."""
    return msgspec.to_builtins(value, enc_hook=_plain, str_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)  # pyright: ignore[reportUnknownArgumentType]  # str or bytes; bytes become base64
    raise TypeError(f"{type(value).__name__} is no JSON value")


def decode_result(artifact_type: type[A], result: Mapping[str, Any], *, what: str) -> A:
    """The artifact whose fields are ``result``. Raises ``ArtifactTypeError`` that names the field at fault."""
    try:
        return msgspec.convert(dict(result), artifact_type, str_keys=True, dec_hook=from_json)
    except (msgspec.ValidationError, TypeError, NameError) as fault:
        raise ArtifactTypeError(f"the {what} does not fit {artifact_type.__name__}: {fault}") from fault
