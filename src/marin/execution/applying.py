"""``apply``: a step made of a plain function and its inputs, without a ``build_config`` of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from marin.errors import InputsError
from marin.execution.applied import AppliedFunction, check_inputs
from marin.execution.artifact import Artifact
from marin.execution.inputs import Inputs
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import RemoteFunction
from marin.execution.version_codex import AMBIENT_VERSION

if TYPE_CHECKING:
    import typing_extensions

    T = typing_extensions.TypeVar("T", bound=Artifact, default=Artifact)
else:
    T = TypeVar("T", bound=Artifact)


def apply(
    name: str,
    fn: Callable[..., Artifact | None] | RemoteFunction | str,
    *,
    version: str = AMBIENT_VERSION,
    artifact_type: type[T] = Artifact,  # type: ignore[assignment]  # the default of T
    **inputs: Any,
) -> ArtifactStep[T]:
    """A handle whose artifact ``fn(**inputs)`` makes. Nothing runs yet.

    ``fn`` is a function, ``remote(...)`` of one, or the name ``"module:function"``. It returns an ``artifact_type``
    (``None``: one without fields). Among the inputs, alone or inside lists, tuples, dicts, sets and dataclasses,

    - a handle is a dependency, and ``fn`` gets its typed artifact, whose files lie at ``.path``;
    - ``OUT`` is the step's output folder, ``OUT / "part"`` a path below it, and ``fn`` gets the path;
    - everything else is a literal, passed as it is, and part of the recipe.

    A set of handles arrives as a tuple in the order of their ids, a dict with handles as keys as a mapping.

    Raises ``InputsError``, a ``TypeError``, if ``fn`` can't be called with these inputs; for a function that is given
    by name that is told when it runs.

    >>> from marin.execution.inputs import OUT
    >>> def write_poem(words, out):
    ...     with open(out / "poem.txt", "w") as file:
    ...         file.write(" ".join(words))
    >>> apply("raw/poem", write_poem, version="2026.07.01", words=["rose"], out=OUT)
    ArtifactStep[Artifact](raw/poem@2026.07.01)
    """
    function = fn.function if isinstance(fn, RemoteFunction) else fn
    if isinstance(function, AppliedFunction):
        function = function.function
    try:
        config, deps = Inputs.of(inputs)
    except InputsError as fault:
        raise InputsError(f"apply({name!r}): {fault}") from None
    applied = AppliedFunction(function)
    handle = ArtifactStep(
        name=name,
        version=version,
        run=replace(fn, function=applied) if isinstance(fn, RemoteFunction) else applied,
        artifact_type=artifact_type,
        build_config=config,
        deps=deps,
    )
    if not isinstance(function, str):
        check_inputs(function, inputs, str(handle.id))
    return handle
