"""A changed artifact type under one version is told, never papered over."""

import datetime
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple, TypedDict

import msgspec
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


# Types inside


@dataclass(frozen=True)
class Split:
    tokens: int
    words: int = 0


class Labelled(NamedTuple):
    label: str
    split: Split


class Loose(TypedDict):
    tokens: int
    words: int


class Renamed(msgspec.Struct, rename={"tokens": "t", "words": "w"}, tag=True):
    tokens: int
    words: int = 0


NOW = {  # the same without ``words``
    Split: make_dataclass("Split", [("tokens", int)], frozen=True),
    Loose: TypedDict("Loose", {"tokens": int}),
    Renamed: msgspec.defstruct("Renamed", [("tokens", int)], rename={"tokens": "t"}, tag=True),
}


def holding(annotation, value=None):
    kind = make_dataclass("Poems", [("splits", annotation)], bases=(Artifact,), frozen=True, kw_only=True)
    return ArtifactStep(name="raw/poems", version=FIXED, artifact_type=kind, run=lambda_free_maker(kind, value))


def lambda_free_maker(kind, value):
    def make(config):
        return kind(splits=value)

    return make


@pytest.mark.parametrize(
    ("form", "value", "where"),
    [
        (lambda now: now[Split], Split(7), r"splits\.words"),
        (lambda now: now[Split] | None, Split(7), r"splits\.words"),
        (lambda now: list[now[Split]], [Split(7)], r"splits\[0\]\.words"),
        (lambda now: tuple[int, now[Split]], (1, Split(7)), r"splits\[1\]\.words"),
        (lambda now: frozenset[now[Split]], frozenset([Split(7), Split(8)]), r"splits\[…\]\.words"),
        (lambda now: dict[str, list[now[Split]]], {"train": [], "test": [Split(7)]}, r"splits\.test\[0\]\.words"),
        (lambda now: dict[int, now[Split]], {1: Split(7)}, r"splits\.1\.words"),
        (lambda now: now[Renamed], Renamed(7), r"splits\.w"),
        (lambda now: list[now[Loose]], [{"tokens": 7, "words": 0}], r"splits\[0\]\.words"),
    ],
)
def test_a_field_that_a_type_inside_has_lost_is_an_error_like_one_at_the_top(options, form, value, where):
    before = {kind: kind for kind in NOW}
    same = holding(form(before), value)
    resolve(same, options=options)
    assert load(same, options=options).splits == value
    message = rf"has {where}, which .* has no longer: give raw/poems a new version.*or keep the field"
    for attempt in (load, resolve):
        with pytest.raises(ArtifactTypeError, match=message):
            attempt(holding(form(NOW), value), options=options)


@pytest.mark.parametrize(
    ("then", "value", "now", "loaded"),
    [
        (int, 7, float, 7.0),
        (str, "2026-07-01", datetime.date, datetime.date(2026, 7, 1)),
        (dict[int, str], {1: "a"}, dict[float, str], {1.0: "a"}),
        (Split, Split(7, 8), dict[str, int], {"tokens": 7, "words": 8}),
        (Split, Split(7), make_dataclass("Split", [("tokens", int), ("words", int), ("lines", int, 0)]), ...),
    ],
)
def test_a_type_that_takes_all_that_was_recorded_is_served(options, then, value, now, loaded):
    resolve(holding(then, value), options=options)
    artifact = load(holding(now), options=options)
    assert loaded is ... or artifact.splits == loaded


def test_of_a_subclass_inside_what_was_declared_is_kept(options):
    more = make_dataclass("More", [("lines", int, 3)], bases=(Split,), frozen=True)
    handle = holding(list[Split], [more(7)])
    assert resolve(handle, options=options).splits == load(handle, options=options).splits == [Split(7)]


def test_a_member_of_an_adopted_config_that_the_type_has_not_is_an_error(options, tmp_path):
    kind = make_dataclass("Poems", [("split", NOW[Split])], bases=(Artifact,), frozen=True, kw_only=True)
    handle = ArtifactStep.adopt(
        name="raw/x", version=FIXED, source=str(tmp_path), kind=kind, config={"split": {"tokens": 7, "words": 8}}
    )
    with pytest.raises(Exception, match=r"has split\.words, which Split has not"):
        resolve(handle, options=options)


# What a record can hold


class Slug(str):
    """Text of a class of its own."""


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict[int, str], {1: "a", -2: "b"}),
        (dict[float, int], {0.5: 1}),
        (dict[datetime.date, int], {datetime.date(2026, 7, 1): 1}),
        (Path, Path("poems/rösé 1.txt")),
        (Path | None, Path("/a")),
        (PurePosixPath, PurePosixPath("a")),
        (dict[str, list[Path]], {"train": [Path("a"), Path("b")]}),
        (dict[Path, int], {Path("a"): 1}),
        (Slug, Slug("rose")),
        (object, [1, "a"]),
    ],
)
def test_what_a_field_holds_is_read_back_as_it_was(options, annotation, value):
    handle = holding(annotation, value)
    assert resolve(handle, options=options).splits == value
    loaded = load(handle, options=options).splits
    assert loaded == value
    assert type(loaded) is type(value)


class Opaque:
    """A class of somebody's that is no dataclass."""


Deep = make_dataclass("Deep", [("inner", dict[str, list[Opaque]])])


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Opaque, "has a field 'splits' of Opaque, which no record can hold: fields are JSON values, dates"),
        (complex, "a field 'splits' of complex"),
        (Deep, r"a field 'splits\.inner' of Opaque"),
        (dict[tuple[int, int], str], "a field 'splits' of a dict whose keys are neither text nor numbers"),
        (dict[bool, str], "whose keys are neither text nor numbers"),
        (Split | Deep, "has a field that no record can hold .*more than one dataclass"),
    ],
)
def test_a_type_that_no_record_could_hold_is_refused_when_the_handle_is_made(annotation, message):
    with pytest.raises(ConfigurationError, match=rf"raw/poems@2026\.07\.01: artifact_type=.* {message}"):
        holding(annotation)
    assert holding(Opaque | None)
