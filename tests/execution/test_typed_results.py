"""A changed artifact type under one version is told, never papered over."""

from dataclasses import dataclass, make_dataclass, replace
from typing import Any, ClassVar

import pytest

from marin.errors import ArtifactTypeError, ConfigurationError
from marin.execution import Artifact, ArtifactStep, load, plan, resolve
from marin.execution.planning import Decision

FIXED = "2026.07.01"


def as_type(*fields, version=FIXED):
    """A handle of ``raw/poems`` whose class ``Poems`` has these fields."""
    kind = make_dataclass("Poems", fields, bases=(Artifact,), frozen=True, kw_only=True, namespace={"__module__": "m"})

    def make(config):
        return kind(**{name: annotation(7) for name, annotation, *_ in fields})

    handle = ArtifactStep(name="raw/poems", version=version, artifact_type=kind, run="m:make")
    return replace(handle, run=make)


def test_the_same_type_is_served(options):
    assert resolve(as_type(("lines", int)), options=options).lines == 7
    assert resolve(as_type(("lines", int)), options=options).lines == 7


CHANGES = {
    "a field removed": ((), r"has lines, which Poems has no longer: give raw/poems a new version.*or keep the field"),
    "a field added without default": (
        (("lines", int), ("words", int)),
        r"missing required field `words`.*Give raw/poems a new version.*default for a new field",
    ),
    "a field renamed": ((("rows", int),), "has lines, which Poems has no longer"),
    "a type changed": ((("lines", str),), r"Expected `str`, got `int` - at `\$\.lines`.*Give raw/poems a new version"),
}


@pytest.mark.parametrize(("fields", "message"), CHANGES.values(), ids=CHANGES)
def test_a_changed_type_under_one_version_is_an_error_before_anything_runs(options, told, fields, message):
    resolve(as_type(("lines", int)), options=options)
    changed = as_type(*fields)
    reader = ArtifactStep(name="reports/poems", version=FIXED, run="m:read", deps=(changed,))
    for attempt in (
        lambda: load(changed, options=options),
        lambda: resolve(changed, options=options, reporter=told),
        lambda: resolve(reader, options=options, reporter=told),
    ):
        with pytest.raises(ArtifactTypeError, match=message):
            attempt()
    assert told.outcomes == {}
    assert plan(reader, options=options).steps[changed.id].decision is Decision.REFUSE


def test_a_field_added_with_a_default_is_served(options):
    resolve(as_type(("lines", int)), options=options)
    grown = make_dataclass("Poems", [("lines", int), ("words", int, 0)], bases=(Artifact,), frozen=True)
    loaded = load(replace(as_type(), artifact_type=grown), options=options)
    assert (loaded.lines, loaded.words) == (7, 0)


def test_another_version_may_have_another_type(options):
    resolve(as_type(("lines", int)), options=options)
    assert resolve(as_type(("words", str), version="2026.07.02"), options=options).words == "7"


def test_a_changed_type_of_a_dev_version_is_simply_rebuilt(options):
    resolve(as_type(("lines", int), version="dev"), options=options)
    assert resolve(as_type(("words", str), version="dev"), options=options).words == "7"


@dataclass(frozen=True)
class Poems(Artifact):
    lines: int = 0


@dataclass(frozen=True)
class Rhymes(Poems):
    scheme: str = ""


def test_a_subclass_counts_as_what_was_declared(options):
    handle = ArtifactStep(name="x", version=FIXED, artifact_type=Poems, run=lambda_free)
    assert type(resolve(handle, options=options)) is Poems
    assert load(handle, options=options).lines == 3


def lambda_free(config):
    return Rhymes(lines=3, scheme="abab")


# Classes that can't be an artifact's type


class Undecorated(Artifact):
    lines: int


class Own(Artifact):
    def __init__(self, lines):
        object.__setattr__(self, "lines", lines)


class Below(Poems):
    words: int


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Undecorated, r"declares 'lines' but is no dataclass: write @dataclass\(frozen=True\) above class Undecorated"),
        (Own, "has an __init__ of its own but is no dataclass"),
        (Below, "declares 'words' but is no dataclass: .* above class Below"),
        (dict, "is not a subclass of Artifact"),
        ({}, "is not a subclass of Artifact"),
        (Poems(), "is not a subclass of Artifact"),
    ],
)
def test_a_class_that_would_lose_its_fields_is_refused_when_the_handle_is_made(kind: Any, message):
    with pytest.raises(ConfigurationError, match=f"raw/x@dev: artifact_type=.* {message}"):
        ArtifactStep(name="raw/x", run="m:f", artifact_type=kind)
    with pytest.raises(ConfigurationError, match=message):
        ArtifactStep.adopt(name="raw/x", source="/data", kind=kind)


def test_a_class_without_fields_of_its_own_needs_no_decorator():
    class Raw(Artifact):
        """Files as they were downloaded."""

        suffix: ClassVar[str] = ".txt"

        def verify(self):
            pass

    assert ArtifactStep(name="raw/x", run="m:f", artifact_type=Raw).artifact_type is Raw


def test_python_itself_refuses_a_class_that_is_not_frozen():
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclass(type("Loose", (Artifact,), {"__annotations__": {"lines": int}}))
