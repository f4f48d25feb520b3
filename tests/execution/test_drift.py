import collections
import functools
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.execution.drift import Change, ChangeKind, compare
from marin.execution.encoding import canonical
from marin.execution.fingerprint import encode
from marin.execution.lazy import ArtifactStep
from marin.execution.showing import MAX_WIDTH, show
from tests.execution import golden_values
from tests.execution.golden_values import Schedule, Size, scaler
from tests.execution.test_fingerprint import VALUES


@dataclass(frozen=True)
class Adam:
    lr: float = 6e-4
    beta: float = 0.9


@dataclass(frozen=True)
class Lion:
    lr: float = 6e-4


@dataclass(frozen=True)
class Config:
    optimizer: object = Adam()
    datasets: object = None
    sizes: object = None


def payload(config=None, **parts):
    return {"config": encode(config, "config"), "deps": [], "function": "m:f", **parts}


def changes(old, new):
    return [str(change) for change in compare(payload(old), payload(new))]


def kinds(old, new):
    return [change.kind for change in compare(payload(old), payload(new))]


@given(VALUES, VALUES)
def test_there_is_a_change_exactly_if_the_recipes_differ(one, other):
    old, new = payload(one), payload(other)
    found = compare(old, new)
    assert (found == ()) == (canonical(old) == canonical(new))
    assert compare(old, old) == ()
    for change in found:
        assert change.path.startswith("config")
        before, arrow, after = str(change).partition(": ")[2].partition(" → ")
        assert not arrow or before != after


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_deps_that_are_not_as_we_write_them_still_count(one, other):
    old, new = (payload(deps=[f"a@{number}" for number in numbers]) for numbers in (one, other))
    assert (compare(old, new) == ()) == (old == new)


@given(
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3),
    st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3),
)
def test_every_member_that_differs_is_told_and_no_other(one, other):
    told = {change.path.split("]")[0] for change in compare(payload(one), payload(other))}
    encoded = [{key: canonical(encode(value, "")) for key, value in mapping.items()} for mapping in (one, other)]
    differs = {key for key in "abc" if encoded[0].get(key) != encoded[1].get(key)}
    assert told == {f'config["{key}"' for key in differs}


def test_a_changed_value_is_told_by_the_path_that_people_write():
    assert changes(Config(Adam(lr=6e-4)), Config(Adam(lr=8e-4))) == ["config.optimizer.lr: 0.0006 → 0.0008"]
    assert changes(Config(datasets={"poems": 1.0}), Config(datasets={"poems": 0.5})) == [
        'config.datasets["poems"]: 1.0 → 0.5'
    ]
    assert changes(Config(sizes=[1, 2, 3]), Config(sizes=[1, 2, 4])) == ["config.sizes[2]: 3 → 4"]
    assert changes(Config(sizes=(1, (2, 3))), Config(sizes=(1, (2, 4)))) == ["config.sizes[1][1]: 3 → 4"]
    assert changes({1: "a"}, {1: "b"}) == ["config[1]: 'a' → 'b'"]
    assert changes({Path("/a"): 1}, {Path("/a"): 2}) == ["config[Path('/a')]: 1 → 2"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (None, 0.1, "None → 0.1"),
        (True, False, "True → False"),
        (1, 1.0, "1 → 1.0"),
        (1, True, "1 → True"),
        ("a", Path("a"), "'a' → Path('a')"),
        (Schedule.COSINE, Schedule.CONSTANT, "Schedule.COSINE → Schedule.CONSTANT"),
        (Size.SMALL, 1, "Size.SMALL → 1"),
        ((1,), [1], "(1,) → [1]"),
        (b"a", bytearray(b"a"), "b'a' → bytearray(b'a')"),
        (2**53, 2**53 + 1, "9007199254740992 → 9007199254740993"),
        ({1, 2}, frozenset({1, 2}), "{1, 2} → frozenset({1, 2})"),
        (len, max, "len → max"),
        (functools.partial(max, 1), max, "partial(max, 1) → max"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_values_are_shown_as_python_writes_them(old, new, text):
    assert changes({"key": old}, {"key": new}) == [f'config["key"]: {text}']


def test_kinds_of_differences():
    assert kinds(Config(Adam(lr=1.0)), Config(Adam(lr=2.0))) == [ChangeKind.LITERAL]
    assert kinds(Config(sizes=None), Config(sizes=1)) == [ChangeKind.LITERAL]
    assert kinds(Config(sizes=1), Config(sizes=1.0)) == [ChangeKind.TYPE]
    assert kinds(Config(Adam()), Config(Lion())) == [ChangeKind.TYPE]
    assert kinds({"a": 1}, {"a": 1, "b": 2}) == [ChangeKind.FIELD_ADDED]
    assert kinds({"a": 1, "b": 2}, {"a": 1}) == [ChangeKind.FIELD_REMOVED]


def test_a_value_of_another_class_is_told_once():
    assert changes(Config(Adam()), Config(Lion())) == [
        "config.optimizer: Adam(lr=0.0006, beta=0.9) → Lion(lr=0.0006)",
    ]


def test_a_class_that_moved_is_told_by_its_full_name():
    moved = make_dataclass("Adam", [("lr", float), ("beta", float)], namespace={"fingerprint_name": "elsewhere:Adam"})
    (told,) = changes({"optimizer": Adam}, {"optimizer": moved})
    assert told == f'config["optimizer"]: {__name__}:Adam → elsewhere:Adam'


def test_added_and_removed_members_are_told_with_their_value():
    assert changes({"a": 1}, {"b": "x"}) == ['config["a"]: removed, was 1', "config[\"b\"]: added, 'x'"]
    assert changes([1], [1, 2]) == ["config[1]: added, 2"]


def test_sets_are_compared_by_member():
    assert changes({"a", "b"}, {"b", "c"}) == ["config: removed, was 'a'", "config: added, 'c'"]


def test_the_order_of_an_ordered_dict_counts():
    old, new = collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)
    assert changes(old, new) == ["config: OrderedDict({'a': 1, 'b': 2}) → OrderedDict({'b': 2, 'a': 1})"]


def test_what_a_closure_holds_is_told():
    assert changes(scaler(3), scaler(4)) == ["config.<cell>.factor: 3 → 4"]
    assert changes(functools.partial(max, 1, key=1), functools.partial(max, 2, key=2)) == [
        "config.arguments[0]: 1 → 2",
        'config.keywords["key"]: 1 → 2',
    ]


def test_long_values_are_shortened_around_the_difference():
    (told,) = changes({"text": "x" * 500 + "old" + "y" * 500}, {"text": "x" * 500 + "new" + "y" * 500})
    assert "xold" in told
    assert "xnew" in told
    assert len(told) < 2 * MAX_WIDTH + 30


def test_every_golden_value_is_shown_shortly_and_differently():
    shown = {name: show(encoding) for name, encoding in golden_values.encodings().items()}
    assert all(len(text) <= MAX_WIDTH for text in shown.values())
    assert shown["dataclass"] == "Adam(lr=0.0006, betas=(0.9, 0.95))"
    assert shown["below the output path"] == "f'{<output_path>}/train'"
    assert shown["datetime"] == "datetime(2026-07-01T12:30:00 timezone(UTC))"
    assert not any(text.startswith('{"') for text in shown.values())


def test_a_record_that_nobody_of_us_wrote_is_still_compared_and_shown():
    strange = {
        "config": {"tuple": 3},
        "deps": None,
        "function": {"object": 1, "fields": None},
        "more": {"unheard": "of"},
    }
    assert compare(strange, payload()) != ()
    assert all(str(change) for change in compare(strange, payload()))
    assert all(str(change) for change in compare(payload(), strange))


# Function, type, source


def test_another_step_function_is_told_by_name():
    (change,) = compare(payload(function="m:f"), payload(function="m:g"))
    assert (str(change), change.kind) == ("function: m:f → m:g", ChangeKind.FUNCTION)


def test_another_artifact_type_is_told_by_name():
    (change,) = compare(payload(artifact_type="m:A"), payload(artifact_type="m:B"))
    assert (str(change), change.kind) == ("artifact_type: m:A → m:B", ChangeKind.TYPE)


def test_another_source_is_told():
    def adopted(path, config):
        return {"source": {"path": path, "config": encode(config, "config")}}

    (change,) = compare(adopted("/a", {}), adopted("/b", {}))
    assert (str(change), change.kind) == ("source.path: '/a' → '/b'", ChangeKind.SOURCE)
    (change,) = compare(adopted("/a", {"tokenizer": "x"}), adopted("/a", {"tokenizer": "y"}))
    assert (str(change), change.kind) == ("source.config[\"tokenizer\"]: 'x' → 'y'", ChangeKind.SOURCE)


# Dependencies


def tokens(version, *, mention=True, extra=None):
    poems = ArtifactStep(name="raw/poems", version=version, run="m:f")
    return ArtifactStep(
        name="tokens",
        version="2026.07.01",
        run="m:f",
        deps=(poems,),
        build_config=lambda ctx: {
            "path": ctx.artifact_path(poems) if mention else "/data",
            "inside": f"{ctx.artifact_path(poems)}/train",
            "fields": [ctx.resolved(poems), ctx.resolved(poems).path / "x", ctx.resolved(poems).vocab_size],
            "extra": extra,
        },
    )


def drift(old, new):
    return [str(change) for change in compare(old.fingerprint().payload, new.fingerprint().payload)]


def test_a_new_version_of_a_dependency_is_told_once():
    (change,) = compare(tokens("2026.07.01").fingerprint().payload, tokens("2026.07.02").fingerprint().payload)
    assert str(change) == "deps.raw/poems: 2026.07.01 → 2026.07.02"
    assert change == Change("deps.raw/poems", "2026.07.01", "2026.07.02", ChangeKind.DEPENDENCY_VERSION)


@pytest.mark.parametrize(("old", "new"), [("2026.07.01", "2026.07.01.2"), ("2026.07.01.2", "2026.07.01")])
def test_versions_that_begin_alike_are_not_confused(old, new):
    assert drift(tokens(old), tokens(new)) == [f"deps.raw/poems: {old} → {new}"]


def test_of_two_versions_of_a_dependency_only_the_one_that_moved_is_followed():
    def both(version):
        deps = [ArtifactStep(name="raw/poems", version=v, run="m:f") for v in (version, "2026.07.01.2")]
        paths = {"deps": tuple(deps), "build_config": lambda ctx: [ctx.artifact_path(dep) for dep in deps]}
        return ArtifactStep(name="tokens", version="2026.07.01", run="m:f", **paths)

    assert drift(both("2026.07.01"), both("2026.07.02")) == [
        "deps.raw/poems: 2026.07.01, 2026.07.01.2 → 2026.07.01.2, 2026.07.02"
    ]


def test_a_literal_that_looks_like_a_placeholder_does_not_follow_a_dependency():
    extra = {"placeholder": "artifact:raw/poems@2026.07.01", "handle": "raw/poems@2026.07.01"}
    for literal in (extra, {"placeholder": extra["placeholder"]}, {"handle": extra["handle"]}):
        assert drift(tokens("2026.07.01", extra=literal), tokens("2026.07.02", extra=literal)) == [
            "deps.raw/poems: 2026.07.01 → 2026.07.02"
        ]


def test_other_changes_are_told_beside_the_version_of_a_dependency():
    assert drift(tokens("2026.07.01"), tokens("2026.07.02", mention=False)) == [
        "config[\"path\"]: <artifact:raw/poems@2026.07.02> → '/data'",
        "deps.raw/poems: 2026.07.01 → 2026.07.02",
    ]


def test_added_and_removed_dependencies_are_told():
    poems = ArtifactStep(name="raw/poems", version="2026.07.01", run="m:f")
    prose = replace(poems, name="raw/prose")
    one, other = (ArtifactStep(name="t", version="2026.07.01", run="m:f", deps=(dep,)) for dep in (poems, prose))
    assert drift(one, other) == ["deps.raw/poems: removed, was 2026.07.01", "deps.raw/prose: added, 2026.07.01"]


def test_a_dependency_held_in_a_field_of_a_step_class_is_told_once():
    @dataclass(frozen=True, eq=False, kw_only=True, repr=False)
    class Training(ArtifactStep):
        tokens: ArtifactStep

        def build_config(self, ctx):
            return ctx.artifact_path(self.tokens)

    def training(version):
        dep = ArtifactStep(name="tokens", version=version, run="m:f")
        return Training(name="model", version="2026.07.01", run="m:f", deps=(dep,), tokens=dep)

    assert drift(training("2026.07.01"), training("2026.07.02")) == ["deps.tokens: 2026.07.01 → 2026.07.02"]
