"""The inputs of ``apply``: literals, and among them handles and the output folder, which become known when it runs."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NoReturn

from marin.errors import ConfigurationError, FingerprintError, InputsError
from marin.execution.artifact import Artifact
from marin.execution.context import StepContext, part_inside
from marin.execution.encoding import MAX_DEPTH, canonical, encode
from marin.execution.lazy import ArtifactStep

Leaf = Callable[[Any], Any]
"""Says what stands in for a handle or an output place."""

_LITERALS = frozenset({type(None), bool, int, float, complex, str, bytes})
_SEQUENCES: dict[type, Callable[[Any, list[Any]], Any]] = {
    list: lambda _, members: members,
    tuple: lambda _, members: tuple(members),
    deque: lambda old, members: deque(members, old.maxlen),
}
_MAPPINGS: dict[type, Callable[[Any, list[tuple[Any, Any]]], Any]] = {
    dict: lambda _, pairs: dict(pairs),
    OrderedDict: lambda _, pairs: OrderedDict(pairs),
    defaultdict: lambda old, pairs: defaultdict(old.default_factory, pairs),
}


@dataclass(frozen=True, repr=False)
class OutputPlace:
    """Stands for a step's output folder, or a path below it, among the inputs of ``apply``.

    >>> OUT / "poems.txt"
    OUT / 'poems.txt'
    """

    tail: tuple[str, ...] = ()

    def __truediv__(self, part: str) -> OutputPlace:
        return OutputPlace((*self.tail, part_inside(part)))

    def __repr__(self) -> str:
        return " / ".join(["OUT", *map(repr, self.tail)])

    def _refuse(self, *_: object) -> NoReturn:
        raise InputsError(
            f"{self!r} is known only when the step runs, and only as an input of apply: pass it as it is, "
            "or OUT / 'part'. In a build_config it is ctx.output_path"
        )

    __str__ = __fspath__ = __format__ = __add__ = __radd__ = _refuse

    def __fingerprint__(self) -> NoReturn:
        raise FingerprintError(f"{self!r} is for the inputs of apply: take ctx.output_path")


OUT: Final = OutputPlace()
"""The step's output folder, for ``apply``: the function gets its path."""


@dataclass(frozen=True)
class Inputs:
    """The ``build_config`` of ``apply``: its inputs with everything in them that only a context knows filled in."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> tuple[Inputs, tuple[ArtifactStep[Any], ...]]:
        """A copy of ``values``, which later changes of lists and dicts do not reach, and the handles in it."""
        handles: dict[ArtifactStep[Any], None] = {}

        def note(leaf: Any) -> Any:
            if isinstance(leaf, ArtifactStep):
                handles[leaf] = None
            return leaf

        kept: dict[str, Any] = {}
        for name, value in values.items():
            try:
                kept[name] = _filled(value, note)
            except InputsError as fault:
                raise InputsError(f"{name}: {fault}") from None
        return cls(kept), tuple(handles)

    def __call__(self, ctx: StepContext) -> dict[str, Any]:
        def fill(leaf: Any) -> Any:
            if isinstance(leaf, ArtifactStep):
                return ctx.resolved(leaf)
            return functools.reduce(lambda path, part: path / part, leaf.tail, ctx.output_path)

        return {name: _filled(value, fill) for name, value in self.values.items()}


class ByArtifact(Mapping[Any, Any]):
    """A dict among the inputs whose keys are handles, as the function gets it: artifacts are looked up by their path.

    Artifacts with equal fields are equal, and some can't be hashed, so that a plain dict would lose some of them.
    """

    fingerprint_name = "marin.ByArtifact"

    def __init__(self, pairs: Mapping[bytes, tuple[Any, Any]]) -> None:
        """``pairs``: key and value by what identifies the key in the recipe."""
        self._pairs = dict(pairs)

    def __getitem__(self, key: Any) -> Any:
        for held, value in self._pairs.values():
            if held is key or _same(held, key):
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._pairs.values())

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{key!r}: {value!r}" for key, value in self._pairs.values()) + "}"

    def __fingerprint__(self) -> list[tuple[Any, Any]]:
        return [self._pairs[identity] for identity in sorted(self._pairs)]


def _same(held: Any, key: Any) -> bool:
    if isinstance(held, Artifact) and isinstance(key, Artifact):
        return held.path == key.path and held == key
    return type(held) is type(key) and not isinstance(held, Artifact) and bool(held == key)


def _filled(value: Any, leaf: Leaf, depth: int = 0) -> Any:
    """``value`` with ``leaf(...)`` for each handle and output place in it. What can be changed is always a copy."""
    cls = type(value)
    if cls in _LITERALS or isinstance(value, Enum):  # a member is its name, whatever it is mixed with
        return value
    if isinstance(value, ArtifactStep | OutputPlace):
        return leaf(value)
    if depth > MAX_DEPTH:
        raise InputsError(f"is nested more than {MAX_DEPTH} deep, or contains itself: make it flatter")
    if (make := _SEQUENCES.get(cls)) is not None:
        members = [_filled(member, leaf, depth + 1) for member in value]
        return value if cls is tuple and _unchanged(members, value) else make(value, members)
    if (fill := _MAPPINGS.get(cls)) is not None:
        return _filled_mapping(value, fill, leaf, depth)
    if cls is set or cls is frozenset:
        return _filled_set(value, leaf, depth)
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        members = [_filled(member, leaf, depth + 1) for member in tuple.__iter__(value)]  # type: ignore[arg-type]
        return value if _unchanged(members, value) else tuple.__new__(cls, members)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _filled_dataclass(value, leaf, depth)
    return value


def _filled_mapping(value: Any, make: Callable[[Any, Any], Any], leaf: Leaf, depth: int) -> Any:
    keys = [_filled(key, leaf, depth + 1) for key in value]
    values = [_filled(inner, leaf, depth + 1) for inner in value.values()]
    if _unchanged(keys, value):
        return make(value, list(zip(keys, values, strict=True)))
    pairs: dict[bytes, tuple[Any, Any]] = {}
    for old, key, inner in zip(value, keys, values, strict=True):
        if pairs.setdefault(_identity(old), (key, inner))[0] is not key:
            raise ConfigurationError(f"a dict among the inputs has two equal keys: {old!r}; leave one of them out")
    return ByArtifact(pairs)


def _filled_set(value: Any, leaf: Leaf, depth: int) -> Any:
    """A set with handles becomes a tuple: artifacts with equal fields would be one, and some can't be hashed."""
    members = {member: _filled(member, leaf, depth + 1) for member in value}
    if all(new is old for old, new in members.items()):
        return set[Any](value) if type(value) is set else value
    by_identity = {_identity(old): new for old, new in members.items()}
    return tuple(by_identity[identity] for identity in sorted(by_identity))


def _filled_dataclass(value: Any, leaf: Leaf, depth: int) -> Any:
    if isinstance(value, Artifact) and value.path:
        raise InputsError(
            f"this {type(value).__name__} was read from {value.path} already: "
            "pass its handle, so that it is a dependency and not a value"
        )
    changed: dict[str, Any] = {}
    for spec in dataclasses.fields(value):
        old = getattr(value, spec.name, None)
        if (new := _filled(old, leaf, depth + 1)) is not old:
            changed[spec.name] = new
    if not changed and _is_frozen(type(value)):
        return value
    # Not by its __init__: a __post_init__ has checked the handle, and would not know the artifact.
    try:
        filled = copy.copy(value)
        for name, new in changed.items():
            object.__setattr__(filled, name, new)
    except Exception as fault:
        raise InputsError(
            f"this {type(value).__name__} can't be copied ({type(fault).__name__}: {fault}): "
            "make its class a frozen dataclass, or pass its fields"
        ) from fault
    for name in [name for name in getattr(filled, "__dict__", ()) if _is_computed(value, name)]:
        del filled.__dict__[name]
    return filled


def _is_frozen(cls: type) -> bool:
    # Of a class without a decorator of its own the instances may have more attributes, and those can be changed.
    parameters = vars(cls).get("__dataclass_params__")
    return parameters is not None and parameters.frozen


def _is_computed(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), functools.cached_property)


def _unchanged(members: list[Any], value: Any) -> bool:
    return all(new is old for new, old in zip(members, value, strict=True))


def _identity(member: Any) -> bytes:
    """What a member of a set, or a key, is in the recipe: the same in every process, whatever stands in for it."""
    named = _filled(
        member, lambda leaf: (type(leaf).__name__, str(leaf.id) if isinstance(leaf, ArtifactStep) else repr(leaf))
    )
    return canonical(encode(named, "a member of a set, or a key"))
