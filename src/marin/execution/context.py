"""What ``build_config`` may ask for: where and how the step runs, none of which is identity.

``build_config`` is called in two ways. To fingerprint a recipe it gets a context of placeholders, which can be passed
on but not computed with. To run the step it gets the real values. So nothing that it takes from the context can leak
into the fingerprint, and no list of excluded fields is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from marin.errors import ConfigurationError, PlaceholderError, UndeclaredDependencyError, UndeclaredRuntimeArgumentError

if TYPE_CHECKING:
    from marin.execution.artifact import Artifact
    from marin.execution.identity import ArtifactId
    from marin.execution.lazy import ArtifactStep

T = TypeVar("T", bound="Artifact")

MARK = "\x00"
"""Encloses the name of a placeholder inside text. No path and no sane literal contains it."""


def part_inside(part: object) -> str:
    """``part`` of a path as it follows a ``/``. Raises ``ConfigurationError`` if it would lead out of the folder."""
    text = str(part)
    if text.startswith("/") or ".." in text.split("/"):
        raise ConfigurationError(
            f"{text!r} behind a path of the context leads out of its folder, where nothing is kept: "
            "name a place inside, without '..' and without a '/' at the beginning"
        )
    return text


class StepPath(str):
    """A path or URL in the store: text that ``/`` extends, accepted wherever a path is.

    >>> StepPath("s3://bucket/poems") / "part-0.arrow"
    's3://bucket/poems/part-0.arrow'
    """

    __slots__ = ()

    def __truediv__(self, part: str) -> StepPath:
        return StepPath(f"{self.rstrip('/')}/{part_inside(part)}")

    def __fspath__(self) -> str:
        return str(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            from pathlib import Path  # noqa: PLC0415  # only for a mistake

            hint = f": it is text, so write Path(...).{name}" if hasattr(Path, name) else ""
            raise AttributeError(f"a path of the context has no {name!r}{hint}")


class StepContext(Protocol):
    """Handed to ``build_config``. Everything that it gives is left out of the fingerprint."""

    @property
    def output_path(self) -> StepPath:
        """Where this attempt writes: a folder of its own, empty when the step starts."""
        ...

    @property
    def prefix(self) -> StepPath:
        """The store's prefix."""
        ...

    @property
    def region(self) -> str | None:
        """The region of the run, where one was said."""
        ...

    def artifact_path(self, dep: ArtifactStep[Any]) -> StepPath:
        """Where the data of a declared dependency lies."""
        ...

    def resolved(self, dep: ArtifactStep[T]) -> T:
        """The typed artifact of a declared dependency: to pass on, not to compute with."""
        ...

    def runtime_arg(self, key: str) -> Any:
        """A declared runtime argument of the step."""
        ...


class Placeholder:
    """Stands for a value that is known only when the step runs. It can be passed on; all else is refused."""

    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        self.token = token

    def __repr__(self) -> str:
        return f"<{self.token}: known only when the step runs>"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PlaceholderError(
            f"build_config computes with {self.token}, which is known only when the step runs: pass it on in the "
            "config, and do it in the step function. Only '/', an f-string, os.fspath and os.path.join work on a path"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __floordiv__ = _refuse
    __truediv__ = __rtruediv__ = __pow__ = __neg__ = __abs__ = __int__ = __float__ = __index__ = __round__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = _refuse
    __call__ = __str__ = __format__ = __bytes__ = __enter__ = __exit__ = __and__ = __or__ = __xor__ = _refuse

    def __eq__(self, other: object) -> bool:
        self._refuse()

    def __hash__(self) -> int:
        self._refuse()


class ValuePlaceholder(Placeholder):
    """A runtime argument, or a resolved artifact whose attributes are placeholders too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return ValuePlaceholder(f"{self.token}.{name}")


class PathPlaceholder(Placeholder):
    """A path that is known only when the step runs. ``/``, f-strings and ``os.fspath`` work."""

    __slots__ = ("tail",)

    def __init__(self, token: str, tail: str = "") -> None:
        super().__init__(token)
        self.tail = tail

    def __str__(self) -> str:
        return f"{MARK}{self.token}{MARK}{self.tail}"

    def __fspath__(self) -> str:
        return str(self)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __truediv__(self, part: object) -> PathPlaceholder:
        return PathPlaceholder(self.token, f"{self.tail}/{part_inside(part)}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()


class PlaceholderContext:
    """The context of a fingerprint: every answer is a placeholder."""

    def __init__(self, step: ArtifactStep[Any]) -> None:
        self._step = step
        self._ids = frozenset(declared.id for declared in step.deps)  # a step may read thousands

    @property
    def output_path(self) -> Any:
        return PathPlaceholder("output_path")

    @property
    def prefix(self) -> Any:
        return PathPlaceholder("prefix")

    @property
    def region(self) -> Any:
        return ValuePlaceholder("region")

    def artifact_path(self, dep: ArtifactStep[Any]) -> Any:
        check_declared(self._step, dep, self._ids)
        return PathPlaceholder(f"artifact:{dep.id}")

    def resolved(self, dep: ArtifactStep[Any]) -> Any:
        check_declared(self._step, dep, self._ids)
        return ResolvedPlaceholder(f"artifact:{dep.id}")

    def runtime_arg(self, key: str) -> Any:
        check_runtime_arg(self._step, key)
        return ValuePlaceholder(f"runtime_arg:{key}")


class ResolvedPlaceholder(ValuePlaceholder):
    """A dependency's typed artifact. Its ``path`` is a path; its fields are values to pass on."""

    __slots__ = ()

    @property
    def path(self) -> PathPlaceholder:
        return PathPlaceholder(self.token)

    def __fspath__(self) -> str:
        return str(self.path)


class RunContext:
    """The context of a run: every answer is the real value."""

    def __init__(
        self,
        step: ArtifactStep[Any],
        *,
        output_path: str,
        prefix: str,
        region: str | None,
        inputs: Mapping[str, Artifact],
    ) -> None:
        """``inputs`` holds the typed artifact of each dependency by ``str(dep.id)``."""
        self._step = step
        self._ids = frozenset(declared.id for declared in step.deps)  # a step may read thousands
        self._inputs = inputs
        self.output_path = StepPath(output_path)
        self.prefix = StepPath(prefix)
        self.region = region

    def artifact_path(self, dep: ArtifactStep[Any]) -> StepPath:
        check_declared(self._step, dep, self._ids)
        return StepPath(self._inputs[str(dep.id)].path)

    def resolved(self, dep: ArtifactStep[T]) -> T:
        check_declared(self._step, dep, self._ids)
        return self._inputs[str(dep.id)]  # type: ignore[return-value]  # the scheduler loads it with dep.artifact_type

    def runtime_arg(self, key: str) -> Any:
        check_runtime_arg(self._step, key)
        return self._step.runtime_args[key]


def check_declared(step: ArtifactStep[Any], dep: ArtifactStep[Any], ids: frozenset[ArtifactId]) -> None:
    """Raise unless ``dep``, or a handle of the same id, is among ``ids``, those of the declared dependencies."""
    given: Any = dep
    if not hasattr(given, "id"):
        raise ConfigurationError(
            f"build_config of {step.id} asks the context for {given!r}: give it the handle itself, not its name"
        )
    if dep.id in ids:
        return
    declared_ids = ", ".join(str(declared.id) for declared in step.deps) or "none"
    raise UndeclaredDependencyError(
        f"{dep.id} is read by build_config of {step.id} but is not a declared dependency: "
        f"add it to deps=(...) so that it is built first (declared: {declared_ids})"
    )


def check_runtime_arg(step: ArtifactStep[Any], key: str) -> None:
    """Raise unless ``key`` is a declared runtime argument of ``step``."""
    if key in step.runtime_args:
        return
    declared = ", ".join(sorted(step.runtime_args)) or "none"
    raise UndeclaredRuntimeArgumentError(
        f"build_config of {step.id} reads the runtime argument {key!r}, which is not declared: "
        f"add it to runtime_args={{{key!r}: ...}} (declared: {declared})"
    )
