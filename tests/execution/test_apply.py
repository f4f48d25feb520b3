import functools
import os
import pickle
import subprocess
import sys
import urllib.request
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import ConfigurationError, FingerprintError, InputsError, MutableDependencyError, RunError
from marin.execution import OUT, Artifact, ArtifactStep, StepContext, apply, load, lower, remote, resolve
from marin.execution.artifact import at_path
from marin.execution.context import StepPath
from marin.execution.inputs import ByArtifact, OutputPlace
from tests.execution.pipelines import Poems, poems

FIXED = "2026.07.01"
CALLS: list[Any] = []


@dataclass(frozen=True)
class Count(Artifact):
    words: int = 0


@dataclass(frozen=True)
class Unhashable(Artifact):
    losses: list[float]


def write(text, out, repeat=1):
    Path(out, "poem.txt").write_text(text * repeat)
    return Count(words=len(text.split()) * repeat)


def take(**inputs):
    CALLS.append(inputs)
    return Count()


def lose(losses):
    return Unhashable(losses=losses)


def nothing(value):
    CALLS.append(value)


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


def poem(name="raw/poem", text="a rose", **more):
    return apply(name, write, version=FIXED, artifact_type=Count, text=text, out=OUT, **more)


def taken(options, **inputs):
    """What ``take`` gets for ``inputs``."""
    resolve(apply("taken", take, **inputs), options=options)
    return CALLS[-1]


# Calling


def test_a_plain_function_becomes_a_step(options):
    handle = poem(repeat=2)
    made = resolve(handle, options=options)
    assert made == Count(words=4)
    assert Path(made.path, "poem.txt").read_text() == "a rosea rose"
    assert resolve(handle, options=options) == load(handle, options=options) == made


@pytest.mark.parametrize(
    "fn", [remote(write), "tests.execution.test_apply:write", remote("tests.execution.test_apply:write")]
)
def test_where_it_runs_and_how_it_is_named_is_no_identity(options, fn):
    handle = apply("raw/poem", fn, version=FIXED, artifact_type=Count, text="a rose", out=OUT)
    assert handle.fingerprint() == poem().fingerprint()
    assert Path(resolve(handle, options=options).path, "poem.txt").read_text() == "a rose"


def test_a_function_that_returns_nothing_makes_an_artifact_without_fields(options):
    assert type(resolve(apply("x", nothing, value=1), options=options)) is Artifact


def test_a_partial_and_a_closure_are_functions_like_any_other(options):
    def bound(text, out):
        return write(text, out, repeat=times)

    times = 3
    for number, fn in enumerate((functools.partial(write, repeat=times), bound)):
        handle = apply(f"raw/{number}", fn, artifact_type=Count, text="rose ", out=OUT)
        assert resolve(handle, options=options).words == 3
    assert (
        apply("x", functools.partial(write, repeat=1), text="", out=OUT).fingerprint()
        != apply("x", functools.partial(write, repeat=2), text="", out=OUT).fingerprint()
    )


def test_a_lambda_is_refused_like_that_of_any_step():
    with pytest.raises(FingerprintError, match=r"x@dev .*<lambda at .*: define it as a module-level function"):
        apply("x", lambda value: None, value=1).fingerprint()


def test_the_name_and_the_version_come_from_the_build_context_as_ever():
    assert apply("x", nothing, value=1).version == "dev"
    with pytest.raises(MutableDependencyError):
        lower(poem(name="raw/other", text=apply("x", nothing, value=1)))


def test_a_handle_of_apply_can_be_changed_and_sent():
    bumped = replace(poem(), version="2026.07.02", expected_fingerprint=str(poem().fingerprint()))
    assert bumped.fingerprint() == poem().fingerprint()
    assert pickle.loads(pickle.dumps(poem())).fingerprint() == poem().fingerprint()


def test_a_handle_says_where_it_was_made():
    assert poem().made_at.split(":")[0].endswith("test_apply.py")


# Handles among the inputs


@dataclass(frozen=True)
class Mixture:
    parts: tuple[Any, ...]
    note: str = "mine"

    def __post_init__(self):
        assert all(isinstance(part, ArtifactStep) for part in self.parts)

    @functools.cached_property
    def names(self):
        return [part.id.name for part in self.parts]


@dataclass(frozen=True, slots=True)
class Slotted:
    part: Any


@dataclass
class Loose:
    part: Any
    seen: list[Any] = field(default_factory=list)


Pair = namedtuple("Pair", "left right")


class Undecorated(Mixture):
    """Of a frozen dataclass, and no dataclass of its own."""


class UndecoratedLoose(Loose):
    """Of one that can be changed."""


@dataclass(frozen=True)
class Size:
    radius: float


class Planet(Size, Enum):
    EARTH = 6.4


class Uncopied(Loose):
    def __copy__(self):
        raise RuntimeError("there is one of me")


def test_a_subclass_without_a_decorator_is_an_input_like_any_other(options):
    value = Undecorated((poems(),))
    value.season = "spring"  # type: ignore[attr-defined]
    handle = apply("a", take, version=FIXED, undecorated=value, loose=UndecoratedLoose(poems()))
    value.season = "autumn"  # type: ignore[attr-defined]
    resolve(handle, options=options)
    assert isinstance(CALLS[0]["undecorated"], Undecorated)
    assert (CALLS[0]["undecorated"].parts, CALLS[0]["undecorated"].season) == ((Poems(lines=3),), "spring")
    assert isinstance(CALLS[0]["loose"], UndecoratedLoose)


def test_an_enum_of_dataclasses_is_passed_as_it_is(options):
    given = {"planet": Planet.EARTH, "planets": {Planet.EARTH: [Planet.EARTH]}}
    resolve(apply("a", take, version=FIXED, **given), options=options)
    assert [given] == CALLS


def test_what_refuses_to_be_copied_is_refused_with_its_name():
    with pytest.raises(
        InputsError, match=r"apply\('a'\): value: this Uncopied can't be copied \(RuntimeError: there is"
    ):
        apply("a", take, version=FIXED, value=[Uncopied(1)])


def test_handles_are_found_wherever_they_lie_and_arrive_as_typed_artifacts(options):
    made = [poems(name=f"raw/{number}") for number in range(12)]
    mixture = Mixture(parts=(made[6],))
    assert mixture.names == ["raw/6"]
    got = taken(
        options,
        top=made[0],
        list=[1, made[1]],
        tuple=(made[2], "a"),
        nested={"a": [{"b": (made[3],)}]},
        namedtuple=Pair(made[4], 2),
        deque=deque([made[5]], maxlen=3),
        mixture=mixture,
        slotted=Slotted(made[7]),
        loose=Loose(made[8]),
        ordered=OrderedDict(a=made[9]),
        default=defaultdict(list, a=[made[10]]),
        absent=None,
    )
    for number, found in enumerate(
        [
            got["top"],
            got["list"][1],
            got["tuple"][0],
            got["nested"]["a"][0]["b"][0],
            got["namedtuple"].left,
            got["deque"][0],
            got["mixture"].parts[0],
            got["slotted"].part,
            got["loose"].part,
            got["ordered"]["a"],
            got["default"]["a"][0],
        ]
    ):
        assert isinstance(found, Poems), number
        assert found.path == f"{options.prefix}/raw/{number}/{FIXED}"
        assert Path(found, "poems.txt").exists()
    assert (type(got["namedtuple"]), got["namedtuple"].right, got["deque"].maxlen) == (Pair, 2, 3)
    assert (type(got["mixture"]), got["mixture"].note, got["absent"]) == (Mixture, "mine", None)
    assert "names" not in vars(got["mixture"])  # it was computed from the handle
    assert (type(got["ordered"]), got["default"].default_factory) == (OrderedDict, list)
    assert mixture.parts == (made[6],)


def test_every_handle_is_a_dependency_once_in_the_order_of_the_inputs():
    one, other = poem("raw/one"), poem("raw/other")
    assert apply("x", take, a=[one, other], b={"c": one}).deps == (one, other)


@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_of_handles_arrives_as_a_tuple_in_the_order_of_their_ids(options, kind):
    # Their artifacts are equal, and can't be hashed.
    made = [apply(f"raw/{name}", lose, version=FIXED, artifact_type=Unhashable, losses=[1.0]) for name in "cab"]
    got = taken(options, handles=kind(made), words=kind({"a", "b"}))
    assert [artifact.path.split("/")[-2] for artifact in got["handles"]] == ["a", "b", "c"]
    assert got["words"] == kind({"a", "b"})
    assert type(got["words"]) is kind


def test_the_order_of_a_set_is_the_same_in_every_process():
    script = (
        "from marin.execution import apply\nfrom tests.execution.test_apply import poem, take\n"
        "handles = {poem(f'raw/{number}') for number in range(20)}\n"
        "print(apply('x', take, handles=handles, words={'a', 'b', 'c'}, pairs={(h, 1) for h in handles}).fingerprint())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_dict_with_handles_as_keys_arrives_as_a_mapping(options):
    one, other = (apply(f"raw/{name}", lose, version=FIXED, artifact_type=Unhashable, losses=[]) for name in "ab")
    got = taken(options, mixture={other: 2.0, one: 1.0, "rest": 0.5})["mixture"]
    assert isinstance(got, Mapping)
    artifacts = [key for key in got if isinstance(key, Unhashable)]
    assert [artifact.path.split("/")[-2] for artifact in artifacts] == ["b", "a"]
    assert [got[artifact] for artifact in artifacts] == [2.0, 1.0]
    assert (got["rest"], len(got), "none" in got) == (0.5, 3, False)
    assert list(got.values()) == [2.0, 1.0, 0.5]
    assert got[load(one, options=options)] == 1.0


def test_weights_of_handles_count_and_their_order_does_not():
    def mixed(pairs):
        return apply("x", take, mixture=dict(pairs)).fingerprint()

    one, other = poem("raw/one"), poem("raw/other")
    assert mixed([(one, 1.0), (other, 2.0)]) == mixed([(other, 2.0), (one, 1.0)])
    assert mixed([(one, 1.0), (other, 2.0)]) != mixed([(one, 2.0), (other, 1.0)])
    with pytest.raises(ConfigurationError, match=r"two equal keys: .*raw/one"):
        mixed([(one, 1.0), (poem("raw/one"), 2.0)])


def test_a_mapping_of_artifacts_can_be_sent_to_another_process(options):
    handle = apply(
        "x",
        remote("tests.execution.test_apply:total"),
        artifact_type=Count,
        mixture={poem("raw/a"): 2, poem("raw/b"): 3},
    )
    assert resolve(handle, options=options).words == 10


def total(mixture):
    return Count(words=sum(artifact.words * weight for artifact, weight in mixture.items()))


def test_a_handle_that_apply_can_not_see_is_refused_with_the_way_out():
    class Box:
        def __init__(self, held):
            self.held = held

        def __fingerprint__(self):
            return self.held

    for handle in (
        apply("x", take, box=Box(poem())),
        apply("x", functools.partial(take, box=poem())),
    ):
        with pytest.raises(FingerprintError, match="handle where apply does not look for one: pass it as an input"):
            handle.fingerprint()


def test_an_artifact_that_was_read_already_is_refused(options):
    made = resolve(poem(), options=options)
    with pytest.raises(InputsError, match=r"apply\('x'\): a: this Count was read from .*: pass its handle"):
        apply("x", take, a=[made])
    assert apply("x", take, a=Count(words=1)).fingerprint() != apply("x", take, a=Count(words=2)).fingerprint()


# The output folder


def test_out_is_the_output_folder_and_may_be_extended(options):
    got = taken(options, out=OUT, deep={"logs": OUT / "logs" / "a.txt"})
    assert type(got["out"]) is StepPath
    assert got["deep"]["logs"] == got["out"] / "logs" / "a.txt"


@pytest.mark.parametrize("use", [str, os.fspath, "{}".format, lambda out: out + "/a", Path])
def test_text_of_out_is_refused_when_the_handle_is_made(use):
    with pytest.raises(InputsError, match="OUT is known only when the step runs"):
        use(OUT)


def test_out_in_a_build_config_is_refused():
    step = ArtifactStep(name="x", run=nothing, build_config=lambda ctx: {"out": OUT})
    with pytest.raises(FingerprintError, match=r"x@dev .*OUT is for the inputs of apply: take ctx\.output_path"):
        step.fingerprint()


# Literals are identity


def test_literals_are_the_recipe_and_their_order_is_not():
    assert apply("x", take, a=1, b=2).fingerprint() == apply("x", take, b=2, a=1).fingerprint()
    assert apply("x", take, a=1).fingerprint() != apply("x", take, a=True).fingerprint()
    assert apply("x", take, a=1).fingerprint() != apply("x", take, b=1).fingerprint()
    assert apply("x", take).fingerprint() != apply("x", nothing, value=None).fingerprint()


def take_either(a):
    """Called with a config, or with an input of that name."""


def test_a_function_of_a_config_and_one_of_inputs_are_two_recipes():
    config = ArtifactStep(name="x", run=take_either, build_config=lambda ctx: {"a": 1})
    assert config.fingerprint() != apply("x", take_either, a=1).fingerprint()


def test_a_list_that_changes_later_does_not_reach_the_handle(options):
    words, loose = ["rose"], Loose(1)
    handles = [apply(f"raw/{number}", take, words=words, loose=loose) for number in range(2)]
    words.append("thorn")
    loose.part = 2
    resolve(handles[0], options=options)
    assert (CALLS[-1]["words"], CALLS[-1]["loose"].part) == (["rose"], 1)
    CALLS[-1]["words"].append("leaf")  # nor does what the function does with it
    resolve(handles[0], options=options)
    assert CALLS[-1]["words"] == ["rose"]


def test_what_contains_itself_is_refused():
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InputsError, match=r"apply\('x'\): a: is nested more than 100 deep, or contains itself"):
        apply("x", take, a=endless)


# Inputs that do not bind


def typed(poems, /, *, language="en"):
    pass


def reserved(version, name):
    pass


class Callable:
    def __call__(self, text):
        pass


@pytest.mark.parametrize(
    ("fn", "inputs", "message"),
    [
        (write, {"text": "a"}, r"raw/x@dev: write\(text, out, repeat=\.\.\.\) .*missing 'out'$"),
        (write, {"txt": "a", "out": OUT}, r"missing 'text'; unexpected 'txt' \(did you mean 'text'\?\)"),
        (write, {"text": "a", "out": OUT, "zzz": 1}, "unexpected 'zzz'$"),
        (remote(write), {}, "missing 'text'; missing 'out'"),
        (functools.partial(write, text="a"), {"aut": 1}, r"missing 'out'; unexpected 'aut' \(did you mean 'out'\?\)"),
        (functools.partial(write, "a"), {"text": 1, "out": OUT}, "unexpected 'text'"),
        (typed, {"poems": 1}, "'poems' is positional-only"),
        (reserved, {}, "missing 'version', which is an argument of apply itself: give it with functools.partial"),
        (Callable(), {"word": 1}, r"Callable\(text\) can't be called .*unexpected 'word'"),
        (Mixture, {}, "missing 'parts'"),
    ],
)
def test_inputs_that_do_not_bind_are_a_type_error_when_the_handle_is_made(fn, inputs, message):
    with pytest.raises(TypeError, match=message) as caught:
        apply("raw/x", fn, **inputs)
    assert isinstance(caught.value, InputsError)


def test_a_function_that_does_not_tell_its_signature_is_believed():
    assert apply("x", max, default=1).fingerprint()


@pytest.mark.parametrize("wrap", [lambda fn: fn, remote], ids=["here", "remote"])
def test_inputs_of_a_named_function_are_checked_before_it_is_called(options, wrap):
    handle = apply("raw/x", wrap("tests.execution.test_apply:write"), text="a", aut=1)
    with pytest.raises(
        RunError, match=r"raw/x@dev: InputsError: tests\.execution\.test_apply:write: write\(.*missing 'out'"
    ):
        resolve(handle, options=options)


@pytest.mark.parametrize(("fn", "message"), [(7, "can't be called"), ("no_colon", "package.module:function")])
def test_what_is_no_function_is_told_when_the_handle_is_made(fn, message):
    with pytest.raises(ConfigurationError, match=message):
        apply("x", fn)


# Laws

NAMES = st.sampled_from("abcdef")


@st.composite
def inputs(draw):
    leaves = st.one_of(
        st.integers(), st.text(max_size=3), st.none(), NAMES.map(lambda name: poem(f"raw/{name}")), st.just(OUT)
    )
    trees = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.text(max_size=3), inner, max_size=3),
            inner.map(Loose),
            inner.map(Slotted),
            st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        ),
        max_leaves=12,
    )
    return draw(st.dictionaries(NAMES, trees, max_size=4))


class Context:
    output_path = StepPath("/out")

    def resolved(self, dep):
        return at_path(Count(), f"/store/{dep.id}")


def plainly(value, leaf):
    """The same by brute force, on nested lists."""
    match value:
        case ArtifactStep() | OutputPlace() | Count() | StepPath():
            return leaf(value)
        case Loose() | Slotted():
            return [plainly(value.part, leaf)]
        case dict():
            return [[key, plainly(inner, leaf)] for key, inner in value.items()]
        case list() | tuple():
            return [plainly(inner, leaf) for inner in value]
        case _:
            return leaf(value)


@given(inputs())
def test_the_function_gets_what_was_given_with_artifacts_for_handles(given_inputs):
    def expected(leaf):
        if isinstance(leaf, ArtifactStep):
            return f"/store/{leaf.id}"
        return "/out" if leaf is OUT else leaf

    handle = apply("x", take, **given_inputs)
    got = handle.build_config(Context())
    assert plainly(got, lambda leaf: leaf.path if isinstance(leaf, Count) else leaf) == plainly(given_inputs, expected)
    found = []
    plainly(given_inputs, lambda leaf: found.append(leaf) if isinstance(leaf, ArtifactStep) else None)
    assert {id(dep) for dep in handle.deps} == {id(leaf) for leaf in found}
    again = apply("x", take, **dict(reversed(given_inputs.items())))
    assert handle.fingerprint() == again.fingerprint()


def test_a_custom_download_is_ten_lines(options, tmp_path):
    (tmp_path / "poem.txt").write_text("a rose")

    @dataclass(frozen=True)
    class Download(Artifact):
        bytes: int

    def download(url, out):
        path, _ = urllib.request.urlretrieve(url, out)
        return Download(bytes=Path(path).stat().st_size)

    url = (tmp_path / "poem.txt").as_uri()
    raw = apply("raw/rose", download, version=FIXED, artifact_type=Download, url=url, out=OUT / "poem.txt")
    assert resolve(raw, options=options).bytes == 6


def test_a_context_of_a_user_may_stand_in_for_ours():
    context: StepContext = Context()  # type: ignore[assignment]
    assert isinstance(apply("x", take, a={poem(): 1}).build_config(context)["a"], ByArtifact)


def test_an_output_outside_of_the_folder_is_refused():
    with pytest.raises(ConfigurationError, match="leads out of its folder"):
        OUT / "../lost"


def test_a_handle_that_was_turned_into_text_is_refused():
    step = apply("text/report", dict, version="2026.07.01", line=f"{poems()}/poems.txt")
    with pytest.raises(FingerprintError, match=r"line.*holds the handle of raw/poems@2026\.07\.01 turned into text"):
        step.fingerprint()


@pytest.mark.parametrize("fn", [None, remote(None)])  # type: ignore[arg-type]
def test_no_function_is_told_when_the_handle_is_made(fn: Any):
    with pytest.raises(ConfigurationError, match=r"raw/x@2026\.07\.01 has no step function"):
        apply("raw/x", fn, version=FIXED)


def calling_itself():
    def count(number):
        return count(number - 1) if number else 0

    def even(number):
        return odd(number - 1) if number else True

    def odd(number):
        return even(number - 1) if number else False

    return [lambda_free(count), lambda_free(even)]


def lambda_free(helper):
    def inner():
        helper(3)

    return inner


@pytest.mark.parametrize("fn", calling_itself())
def test_a_local_function_that_calls_itself_is_refused_with_the_way_out(fn):
    with pytest.raises(FingerprintError, match=r"calls itself, .*: move it to module level"):
        apply("raw/x", fn, version=FIXED).fingerprint()
