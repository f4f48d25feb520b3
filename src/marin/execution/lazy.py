"""Handles: what a pipeline is made of.

An ``ArtifactStep`` is a name, a version and a pure recipe. Making one does no work and touches nothing; ``run`` and
``resolve`` (in ``marin.execution``) look at the store and build what is missing.

Over 300 lines because everything that can be wrong with a handle is told where it is made.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from marin.errors import ConfigurationError
from marin.execution.applied import AppliedFunction
from marin.execution.artifact import Artifact
from marin.execution.context import StepContext
from marin.execution.identity import ArtifactId, artifact_id
from marin.execution.recipe import recipe_fingerprint
from marin.execution.remote_function import RemoteFunction
from marin.execution.results import type_fault
from marin.execution.step_function import call_fault
from marin.execution.version_codex import AMBIENT_VERSION, ambient_version, note_written_version

if TYPE_CHECKING:
    # Checkers bring this module along; with it a handle without an artifact_type is one of Artifact.
    import typing_extensions

    from marin.execution.fingerprint import Fingerprint

    T = typing_extensions.TypeVar("T", bound=Artifact, covariant=True, default=Artifact)
else:
    T = TypeVar("T", bound=Artifact, covariant=True)

K = TypeVar("K", bound=Artifact)

StepFunction = Callable[[Any], "Artifact | None"] | RemoteFunction | str
"""Takes the config and returns the artifact (``None``: an ``artifact_type`` without fields); or ``module:function``."""

_FUNCTION_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_EXPECTED = re.compile(r"\d+:[0-9a-f]{8,64}")


@dataclass(frozen=True, kw_only=True)
class AdoptedSource:
    """Data that was made elsewhere: where it lies, and what its author says about it."""

    path: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])


# Handles are keys of a mixture and compare by identity: two handles with equal fields are still two handles.
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ArtifactStep(Generic[T]):
    """One artifact, described: where it lies (``name``, ``version``) and how it is made. Nothing runs yet.

    - ``version``: a date version, ``dev`` or ``<label>-dev``; left out, the build context says (``dev`` outside one).
    - ``run``: the step function, ``remote(...)`` of one, or the name ``"module:function"``; called with the config.
    - ``artifact_type``: what it returns and ``load`` gives back.
    - ``build_config``: a pure function of a ``StepContext``. What it writes as literals is identity, what it takes
      from the context is not. A subclass may define it as a method instead, ``def build_config(self, ctx)``.
    - ``deps``: the handles that ``build_config`` reads through the context.
    - ``runtime_args``: values for ``ctx.runtime_arg(key)``: how the step runs, never identity.
    - ``expected_fingerprint``: ``"1:abcd1234"``; a recipe or record that differs becomes an error.
    - ``pin``: read the artifact from this path; never build, never write.
    - ``source``: adopted data, see ``adopt``.

    >>> poems = ArtifactStep(name="raw/poems", version="2026.07.01", run="my_project.poems:write")
    >>> poems
    ArtifactStep[Artifact](raw/poems@2026.07.01)
    """

    name: str
    version: str = AMBIENT_VERSION
    run: StepFunction | None = None
    artifact_type: type[T] = Artifact  # type: ignore[assignment]  # the default of T
    if TYPE_CHECKING:
        # A field at run time. Checkers see a method, so that a subclass may override it as one.
        def build_config(self, ctx: StepContext, /) -> Any: ...

        def __init__(
            self,
            *,
            name: str,
            version: str = AMBIENT_VERSION,
            run: StepFunction | None = None,
            artifact_type: type[T] = Artifact,
            build_config: Callable[[StepContext], Any] | None = None,
            deps: Sequence[ArtifactStep[Any]] = (),
            runtime_args: Mapping[str, Any] | None = None,
            expected_fingerprint: str | None = None,
            pin: str | None = None,
            source: AdoptedSource | None = None,
        ) -> None: ...

    else:
        build_config: Callable[[StepContext], Any] | None = None
    deps: Sequence[ArtifactStep[Any]] = ()
    runtime_args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expected_fingerprint: str | None = None
    pin: str | None = None
    source: AdoptedSource | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # @dataclass would compare by fields, and give a hash that fails for most of them; it keeps what it finds.
        if "__eq__" not in cls.__dict__ and "__hash__" not in cls.__dict__:
            cls.__eq__ = object.__eq__
            cls.__hash__ = object.__hash__

    def __post_init__(self) -> None:
        if self.version == AMBIENT_VERSION:
            object.__setattr__(self, "version", ambient_version(self.name))
        else:
            note_written_version(self.name, self.version)
        object.__setattr__(self, "_id", artifact_id(self.name, self.version))
        object.__setattr__(self, "_made_at", _caller())
        object.__setattr__(self, "deps", _checked_deps(self))
        object.__setattr__(self, "runtime_args", dict(self.runtime_args or {}))
        if self.pin is not None:
            object.__setattr__(self, "pin", os.fspath(self.pin))
        self._bind_build_config()
        self._check_recipe()

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.artifact_type.__name__}]({self.id})"

    def _repr_html_(self) -> str | None:
        from marin.execution.html import handle_html  # noqa: PLC0415  # only notebooks ask for it

        return handle_html(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = ""
            if name == "path" or name in getattr(self.__dict__.get("artifact_type"), "__dataclass_fields__", ()):
                hint = (
                    "; it is the artifact that has it: resolve(handle), in build_config ctx.resolved(handle), "
                    "or pass the handle to apply"
                )
            raise AttributeError(f"a handle has no {name!r}{hint}")

    @property
    def id(self) -> ArtifactId:
        return self._id  # type: ignore[attr-defined]  # set in __post_init__; not a field

    @property
    def made_at(self) -> str:
        """``file:line`` of the code that made this handle."""
        return self._made_at  # type: ignore[attr-defined]

    def fingerprint(self) -> Fingerprint:
        """The hash of the recipe and the typed JSON that it was taken from. The same in every process.

        Raises ``FingerprintError`` with the path to a value that has no stable encoding.
        """
        cached: Fingerprint | None = self.__dict__.get("_fingerprint")
        if cached is None:
            cached = recipe_fingerprint(self)
            object.__setattr__(self, "_fingerprint", cached)
        return cached

    def own_fields(self) -> dict[str, Any]:
        """What a subclass adds to the recipe: its dataclass fields and data attributes. Always identity."""
        return {} if type(self) is ArtifactStep else dict(_own_fields(self))

    @classmethod
    def adopt(
        cls,
        *,
        name: str,
        version: str = AMBIENT_VERSION,
        kind: type[K],
        source: str | None = None,
        adopt_source: str | None = None,
        config: Mapping[str, Any] | None = None,
        expected_fingerprint: str | None = None,
    ) -> ArtifactStep[K]:
        """Bring data that was made elsewhere into the graph: nothing is copied, a record tells its provenance.

        ``source`` (or ``adopt_source``, the same) is the path or URL of the data. ``config`` says what the data does
        not say of itself. A later change of ``source`` under one version is reported as drift.

        >>> ArtifactStep.adopt(name="raw/poems", version="2025.12.01", source="/data/poems", kind=Artifact)
        ArtifactStep[Artifact](raw/poems@2025.12.01)
        """
        path = source if source is not None else adopt_source
        if not path or (source is not None and adopt_source is not None and source != adopt_source):
            raise ConfigurationError(
                f"adopt({name!r}): give the place of the data once, as source='/data/...' or a URL"
            )
        return ArtifactStep(
            name=name,
            version=version,
            artifact_type=kind,
            source=AdoptedSource(path=str(path), config=dict(config or {})),
            expected_fingerprint=expected_fingerprint,
        )

    def _bind_build_config(self) -> None:
        """Let ``def build_config(self, ctx)`` of a subclass be the recipe, bound to this instance and no other."""
        method = _overriding_method(type(self))
        given: Any = self.__dict__.get("build_config")
        if method is None:
            return
        # replace() hands over the method bound to the old handle.
        if given is None or getattr(given, "__func__", given) is method:
            object.__setattr__(self, "build_config", MethodType(method, self))

    def _check_recipe(self) -> None:
        ways = [key for key in ("run", "pin", "source") if getattr(self, key) is not None]
        if len(ways) > 1 and ways != ["run", "pin"]:
            raise ConfigurationError(f"{self.id}: {' and '.join(ways)} exclude each other")
        if not ways:
            raise ConfigurationError(
                f"{self.id} has no step function: give run=function, or adopt or pin existing data"
            )
        if self.pin == "":
            raise ConfigurationError(f"{self.id}: pin is empty: give the path of the artifact to read, or leave it out")
        _check_function(self)
        config: Any = self.__dict__.get("build_config")
        if config is not None and not callable(config):
            raise ConfigurationError(
                f"{self.id}: build_config={config!r} can't be called: "
                "give a function of the context, such as lambda ctx: {...}"
            )
        if (fault := type_fault(self.artifact_type)) is not None:
            raise ConfigurationError(f"{self.id}: artifact_type={self.artifact_type!r} {fault}")
        expected: Any = self.expected_fingerprint
        if expected is not None and not (isinstance(expected, str) and _EXPECTED.fullmatch(expected)):
            raise ConfigurationError(
                f"{self.id}: expected_fingerprint={self.expected_fingerprint!r} is not 'scheme:hash' "
                "with at least 8 hex digits, such as '1:abcd1234'; 'marin show' prints it"
            )


def _check_function(step: ArtifactStep[Any]) -> None:
    function = step.run.function if isinstance(step.run, RemoteFunction) else step.run
    is_applied = isinstance(function, AppliedFunction)
    function = function.function if is_applied else function
    if function is None and step.run is not None:
        raise ConfigurationError(f"{step.id} has no step function: what stands in its place is None")
    if isinstance(function, str) and not _FUNCTION_NAME.fullmatch(function):
        raise ConfigurationError(f"{step.id}: run={function!r} is not of the form 'package.module:function'")
    if function is not None and not isinstance(function, str) and not callable(function):
        raise ConfigurationError(f"{step.id}: run is {type(function).__name__}, which can't be called: {function!r}")
    if not is_applied and callable(function) and (fault := call_fault(function)) is not None:
        raise ConfigurationError(f"{step.id}: run={fault}. Take the one, or use apply(name, function, ...)")


def _checked_deps(step: ArtifactStep[Any]) -> tuple[ArtifactStep[Any], ...]:
    given: Any = step.deps
    if isinstance(given, ArtifactStep):
        raise ConfigurationError(f"{step.id}: deps={given!r} is one handle: write deps=(handle,), a tuple")
    deps = tuple(given)
    for position, dep in enumerate(deps):
        if not isinstance(dep, ArtifactStep):
            raise ConfigurationError(
                f"{step.id}: deps[{position}] is {type(dep).__name__}, not an ArtifactStep: {dep!r}"
            )
    return deps


def _overriding_method(cls: type) -> Callable[..., Any] | None:
    for base in cls.__mro__:
        if base is ArtifactStep:
            return None
        method = base.__dict__.get("build_config")
        if isinstance(method, classmethod | staticmethod):
            raise ConfigurationError(
                f"{cls.__name__}.build_config is a {type(method).__name__}: write def build_config(self, ctx), "
                "so that it reads the fields of its own handle"
            )
        if callable(method):
            return method
    return None


def _own_fields(step: ArtifactStep[Any]) -> Iterator[tuple[str, Any]]:
    base = {spec.name for spec in dataclasses.fields(ArtifactStep)}
    declared = {spec.name for spec in dataclasses.fields(step)}
    seen = set[str]()
    for cls in type(step).__mro__:
        if cls is ArtifactStep:
            break
        names = [*cls.__dict__, *cls.__dict__.get("__dataclass_fields__", {})]
        for name in names:
            value = getattr(step, name, None)
            if name in base or name in seen:
                continue
            # A field counts whatever it holds; of the other attributes those that are data.
            if name not in declared and (name.startswith("_") or callable(value)):
                continue
            if isinstance(cls.__dict__.get(name), property | classmethod | staticmethod):
                continue
            seen.add(name)
            yield name, value


def _caller() -> str:
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # inspect.stack reads source files; a handle must not
    while frame.f_back is not None and (
        frame.f_code.co_filename == "<string>" or _is_ours(frame.f_globals.get("__name__", ""))
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module.startswith("marin.") or module == "dataclasses"
