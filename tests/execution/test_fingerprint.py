import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import json
import math
import operator
import os
import pathlib
import pickle
import re
import shutil
import struct
import subprocess
import sys
import threading
import types
import typing
import uuid
import zoneinfo
from dataclasses import dataclass, field
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import FingerprintError
from marin.execution import context
from marin.execution.encoding import MAX_DEPTH
from marin.execution.fingerprint import Fingerprint, absent_means, canonical, digest, encode, execution_only
from marin.execution.lazy import ArtifactStep
from tests.execution import golden_values
from tests.execution.golden_values import (
    GOLDEN,
    Access,
    Adam,
    Label,
    Mode,
    Moved,
    Point,
    Schedule,
    Size,
    halved,
    scaler,
)

ROOT = Path(__file__).parents[2]


def print_of(value):
    return canonical(encode(value, "config"))


def alike(one, other):
    return print_of(one) == print_of(other)


# Laws

# Few values, of many types, that some hash somewhere has taken for each other.
LEAVES = st.sampled_from(
    [
        *(None, True, False, 0, 1, 2, -1, "", "0", "1", "True", "None", "a", "float", "dict", "/a", "0.0", "nan"),
        *(0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 2**53, 2**53 - 1, -(2**70), "0x20000000000000", 1j, 0j),
        *(
            b"",
            b"a",
            b"1",
            b"61",
            bytearray(b"a"),
            bytes(300),
            bytes(301),
            "\x00",
            "\x00output_path\x00",
            "\ud800",
            "\\ud800",
        ),
        *(
            Path("/a"),
            Path("a"),
            Path("1"),
            Schedule.COSINE,
            "cosine",
            Size.SMALL,
            Mode.FAST,
            "fast",
            Label("a"),
            Label("1"),
        ),
        *(Access.READ, Access.BOTH, Access(0), decimal.Decimal("1"), decimal.Decimal("1.0"), fractions.Fraction(1)),
        *(datetime.date(2026, 7, 1), datetime.datetime(2026, 7, 1), datetime.time(1), datetime.timedelta(1)),
        *(
            datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC),
            datetime.UTC,
            "2026-07-01",
            uuid.UUID(int=1),
            str(uuid.UUID(int=1)),
        ),
        *(range(1), range(2), range(0, 2, 2), slice(1), re.compile("a"), re.compile("a", re.I), re.compile(b"a"), ...),
        *(int, bool, float, str, dict, list, len, max, str.upper, print_of, alike, list[int], list[str], int | None),
        *(np.float32(1), np.float64(1), np.int64(1), np.bool_(True), np.float32, np.dtype("float32"), np.dtype(">f4")),
        *(jnp.float32, jnp.bfloat16, np.dtype(jnp.bfloat16), ml_dtypes.bfloat16(1)),
    ]
)


@dataclass(frozen=True)
class Pair:
    one: object
    two: object = None


@dataclass(frozen=True)
class Couple:
    one: object
    two: object = None


def hashable(values):
    return st.lists(values.filter(lambda value: _hashes(value)), max_size=3)


def _hashes(value):
    try:
        hash(value)
    except TypeError:
        return False
    return True


def containers(values):
    keys = st.sampled_from(["a", "b", "1", 1, None, ("a",), "float", "dict", "fields", "object", b"a", 2.5, Path("a")])
    names = st.sampled_from(["a", "b", "1", "float", "dict", "tuple", "path", "placeholder", "object"])
    return st.one_of(
        st.lists(values, max_size=3),
        st.lists(values, max_size=3).map(tuple),
        hashable(values).map(set),
        hashable(values).map(frozenset),
        st.dictionaries(names, values, max_size=3),
        st.dictionaries(keys, values, max_size=3),
        st.dictionaries(names, values, max_size=2).map(collections.OrderedDict),
        st.dictionaries(names, values, max_size=2).map(lambda items: collections.defaultdict(list, items)),
        st.lists(values, max_size=2).map(collections.deque),
        st.builds(Pair, values, values),
        st.builds(Couple, values, values),
        st.builds(Point, values, values),
        st.builds(lambda value: functools.partial(scaler, value), values),
        st.builds(lambda value: types.SimpleNamespace(one=value), values),
    )


VALUES = st.recursive(LEAVES | st.text(max_size=4) | st.integers() | st.floats(), containers, max_leaves=6)


def same(one, other):
    """Equality that knows types: what the encoding must agree with, said in another way."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and not isinstance(one, np.generic):
        return struct.pack("d", one) == struct.pack("d", other) or (one != one and other != other)
    if isinstance(one, collections.OrderedDict):
        return len(one) == len(other) and all(
            same(k, j) and same(v, w) for (k, v), (j, w) in zip(one.items(), other.items(), strict=True)
        )
    if isinstance(one, dict):
        return same_members(list(one.items()), list(other.items()))
    if isinstance(one, set | frozenset):
        return same_members(list(one), list(other))
    if isinstance(one, list | tuple | collections.deque):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Pair | Couple | types.SimpleNamespace):
        return same(vars(one), vars(other))
    if isinstance(one, functools.partial):
        return same(one.args, other.args)
    if isinstance(one, complex | decimal.Decimal):
        return repr(one) == repr(other)
    return one == other


def same_members(ones, others):
    left = list(others)
    for one in ones:
        match = next((index for index, other in enumerate(left) if same(one, other)), None)
        if match is None:
            return False
        del left[match]
    return not left


def rebuilt(value):
    """The same value, made in another order and of other objects."""
    kind = type(value)
    if kind in (set, frozenset):
        return kind(rebuilt(item) for item in reversed(list(value)))
    if kind is dict:
        return {rebuilt(key): rebuilt(item) for key, item in reversed(value.items())}
    if kind is collections.OrderedDict:
        return collections.OrderedDict((rebuilt(key), rebuilt(item)) for key, item in value.items())
    if kind in (list, tuple, collections.deque):
        return kind(rebuilt(item) for item in value)
    if kind in (Pair, Couple):
        return kind(rebuilt(value.one), rebuilt(value.two))
    if kind is str:
        return "".join(list(value))
    return pickle.loads(pickle.dumps(value)) if kind in (int, float, bytes, Point, np.float32) else value


@given(VALUES)
def test_equal_values_built_in_another_way_encode_alike(value):
    assert alike(value, rebuilt(value))


@given(VALUES, VALUES)
def test_values_encode_alike_exactly_if_type_and_value_are_the_same(one, other):
    assert alike(one, other) == same(one, other)


@given(LEAVES, LEAVES, st.sampled_from([list, tuple, Pair, collections.deque]))
def test_leaves_inside_containers_stay_apart(one, other, container):
    wrap = container if container is Pair else lambda leaf: container([leaf])
    assert alike(wrap(one), wrap(other)) == same(one, other)


@given(VALUES)
def test_an_encoding_is_json_that_survives_being_written(value):
    encoded = encode(value, "config")
    assert canonical(json.loads(canonical(encoded))) == canonical(encoded)
    assert canonical(msgspec.json.decode(msgspec.json.encode(encoded))) == canonical(encoded)


@given(VALUES)
def test_no_value_encodes_like_its_own_encoding_unless_it_is_plain_json(value):
    encoded = encode(value, "config")
    assert alike(encoded, value) == same(encoded, value)


# Known traps


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (1, "1"),
        (None, "None"),
        (0.0, -0.0),
        ((1,), [1]),
        ({1}, frozenset({1})),
        ({1: "a"}, {"1": "a"}),
        ({1: "a"}, {True: "a"}),
        ({}, set()),
        (Path("/a"), "/a"),
        (b"a", "a"),
        (b"a", bytearray(b"a")),
        (Schedule.COSINE, "cosine"),
        (Schedule.COSINE, Schedule.CONSTANT),
        (Size.SMALL, 1),
        (Mode.FAST, "fast"),
        (Label("a"), "a"),
        (Pair(1), Couple(1)),
        (Pair(1), {"one": 1, "two": None}),
        (Point(1, 2), (1, 2)),
        ({"a": 1}, collections.OrderedDict(a=1)),
        (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
        (collections.defaultdict(list), collections.defaultdict(set)),
        (np.float32(1), 1.0),
        (np.float64(1), 1.0),
        (np.float32(1), np.float64(1)),
        (np.int64(1), 1),
        (np.array(1.0), np.float64(1)),
        (np.array([1, 2]), [1, 2]),
        (np.array([1, 2]), np.array([1.0, 2.0])),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.array([0.0]), np.array([-0.0])),
        (np.dtype("float32"), "float32"),
        (np.dtype("float32"), np.float32),
        (np.dtype("V2"), np.dtype(jnp.bfloat16)),
        (scaler(3), scaler(4)),
        (scaler(3), scaler(3.0)),
        (functools.partial(scaler, 3), functools.partial(scaler, factor=3)),
        (halved(len), halved(max)),
        (golden_values.decorated, golden_values.decorated.__wrapped__),
        ("x".upper, "y".upper),
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        (datetime.UTC, datetime.timezone(datetime.timedelta(0), "GMT")),
        (
            datetime.datetime(2026, 7, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
            datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        ),
        (datetime.datetime(2026, 10, 25, 2, 30), datetime.datetime(2026, 10, 25, 2, 30, fold=1)),
        ("é", "e\u0301"),
        ("\ud83d\ude00\ud800", "😀\ud800"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_these_stay_apart(one, other):
    assert not alike(one, other)
    assert not alike({"key": one}, {"key": other})


@pytest.mark.parametrize("tag", ["float", "dict", "tuple", "placeholder", "object", "path", "set", "class", "int"])
def test_a_dict_of_a_users_is_never_taken_for_a_tag(tag):
    assert encode({tag: "1.0"}, "config") == {"dict": {tag: "1.0"}}


def test_equal_ranges_are_equal_however_their_end_was_written():
    assert alike(range(0, 5, 2), range(0, 6, 2))
    assert alike(range(0), range(7, 3))
    assert not alike(range(0, 5, 2), range(0, 7, 2))
    assert alike(range(10**30), range(0, 10**30, 1))


def test_a_decimal_does_not_depend_on_the_threads_context():
    plain = print_of(decimal.Decimal("1e20"))
    with decimal.localcontext() as local:
        local.capitals = 0
        assert print_of(decimal.Decimal("1e20")) == plain


def test_flags_have_one_encoding_however_combined():
    assert alike(Access.BOTH, Access.WRITE | Access.READ)
    assert not alike(Access.BOTH, Access.READ)


def test_unknown_bits_of_an_open_flag_count():
    class Open(enum.IntFlag):
        A = 1

    assert not alike(Open.A | 8, Open.A)
    assert not alike(Open.A | 8, Open.A | 16)


def test_huge_integers_work():
    assert not alike(10**5000, 10**5000 + 1)


# Classes, and what counts of them


def test_a_class_with_a_fixed_name_can_move():
    elsewhere = dataclasses.make_dataclass("Renamed", [("size", int)], namespace={"fingerprint_name": "test.Moved"})
    assert alike(Moved(size=1), elsewhere(size=1))
    assert alike(Moved, elsewhere)


def test_a_fixed_name_is_not_inherited():
    @dataclass(frozen=True)
    class Child(Moved):
        pass

    assert not alike(Child(size=1), Moved(size=1))


def test_a_fixed_name_that_is_no_text_is_refused():
    class Bad:
        fingerprint_name = 3

    with pytest.raises(FingerprintError, match=r"Bad\.fingerprint_name is 3: give it a non-empty text"):
        encode(Bad, "config")


def test_a_field_that_is_execution_only_does_not_count():
    assert alike(Adam(lr=0.1, workers=1), Adam(lr=0.1, workers=8))


def test_a_later_field_is_left_out_while_it_has_the_value_of_its_absence():
    assert "z_loss" not in encode(Adam(lr=0.1), "config")["fields"]
    assert not alike(Adam(lr=0.1), Adam(lr=0.1, z_loss=0.1))


def test_the_value_of_absence_is_compared_with_its_type():
    @dataclass(frozen=True)
    class Later:
        on: object = field(default=True, metadata=absent_means(True))

    assert encode(Later(True), "config")["fields"] == {}
    assert encode(Later(1), "config")["fields"] == {"on": 1}


def test_metadata_of_both_kinds_is_only_a_mapping():
    assert field(metadata=execution_only() | {"unit": "s"}).metadata["unit"] == "s"


def test_an_attribute_that_a_dataclass_sets_without_declaring_it_counts():
    @dataclass
    class Loose:
        size: int

    one, other = Loose(1), Loose(1)
    other.extra = 2
    assert not alike(one, other)


def test_a_property_that_was_read_does_not_count():
    @dataclass(frozen=True)
    class Model:
        width: int

        @functools.cached_property
        def parameters(self):
            return self.width**2

    one, other = Model(2), Model(2)
    assert other.parameters == 4
    assert alike(one, other)


def test_the_content_of_a_dataclass_that_is_a_dict_counts():
    @dataclass
    class Named(dict):
        name: str

    one, other = Named("a"), Named("a")
    other["key"] = 1
    assert not alike(one, other)


def test_the_attributes_of_a_subclass_of_text_count():
    class Unit(str):
        __slots__ = ("scale",)

    one, other = Unit("m"), Unit("m")
    one.scale, other.scale = 1, 1000
    assert not alike(one, other)


def test_a_subclass_can_not_disguise_its_content():
    class Mask(str):
        def __str__(self):
            return "***"

    assert not alike(Mask("a"), Mask("b"))


def test_structs_encode_their_fields():
    class Config(msgspec.Struct):
        lr: float
        name: str = "adam"

    assert encode(Config(0.5), "config")["fields"] == {"lr": {"float": "0.5"}, "name": "adam"}


def test_pydantic_models_encode_their_fields():
    pydantic = pytest.importorskip("pydantic")

    class Config(pydantic.BaseModel, extra="allow"):
        lr: float

    assert encode(Config(lr=0.5, note="x"), "config")["fields"] == {"lr": {"float": "0.5"}, "note": "x"}


def test_attrs_classes_encode_their_fields():
    attrs = pytest.importorskip("attrs")

    @attrs.frozen
    class Config:
        lr: float
        workers: int = attrs.field(default=1, metadata=execution_only())

    assert encode(Config(lr=0.5), "config")["fields"] == {"lr": {"float": "0.5"}}


# Arrays


def test_an_array_is_its_values_not_its_layout():
    square = np.arange(12, dtype="float32").reshape(3, 4)
    assert alike(square, np.asfortranarray(square))
    assert alike(square[:, ::2], square[:, ::2].copy())
    assert not alike(square, square.T)


def test_an_array_of_the_other_byte_order_hashes_the_same_bytes_under_another_dtype():
    one, other = (encode(np.arange(3, dtype=order + "i4"), "config") for order in "<>")
    assert one["sha256"] == other["sha256"]
    assert (one["array"], other["array"]) == ("int32", ">int32")


def test_the_padding_of_a_structured_array_does_not_count():
    layout = np.dtype([("a", "i1"), ("b", "i8")], align=True)
    raw = np.frombuffer(bytes(16), dtype=layout), np.frombuffer(b"\0" + b"x" * 7 + bytes(8), dtype=layout)
    assert alike(*raw)
    assert not alike(raw[0], np.frombuffer(b"\1" + bytes(15), dtype=layout))


def test_an_array_of_objects_is_refused():
    with pytest.raises(FingerprintError, match=r"^config\.one: dtype object holds Python objects.*pass a list"):
        encode(Pair(np.array([object()])), "config")


def test_a_jax_array_is_refused_with_the_remedy():
    with pytest.raises(FingerprintError, match=r"pass numpy\.asarray"):
        encode(jnp.ones(3), "config")


def test_functions_of_numerical_libraries_go_by_their_name():
    assert encode([np.add, jnp.sum], "config") == [{"function": "numpy:add"}, {"function": "jax.numpy:sum"}]
    assert not alike(jax.nn.gelu, jax.nn.relu)


def test_fingerprints_import_no_heavy_library():
    code = "import sys, marin.execution.recipe; print(sorted({'numpy', 'jax', 'pyarrow'} & sys.modules.keys()))"
    assert child([sys.executable, "-c", code]) == "[]\n"


# Placeholders


def test_ways_to_write_one_path_below_the_output_encode_alike():
    step = ArtifactStep(name="a", version="dev", run="m:f")
    ctx = context.PlaceholderContext(step)
    expected = {"template": [{"placeholder": "output_path"}, "/x"]}
    assert encode(ctx.output_path / "x", "config") == expected
    assert encode(f"{ctx.output_path}/x", "config") == expected
    assert encode(os.path.join(ctx.output_path, "x"), "config") == expected
    assert encode(Path(ctx.output_path) / "x", "config") == {"path": expected}


def test_everything_that_a_context_gives_is_recognised():
    dep = ArtifactStep(name="raw/poems", version="2026.07.01", run="m:f")
    step = ArtifactStep(name="a", version="2026.07.01", run="m:f", deps=(dep,), runtime_args={"device": "cpu"})
    ctx = context.PlaceholderContext(step)
    given = [
        ctx.output_path,
        ctx.prefix,
        ctx.region,
        ctx.artifact_path(dep),
        ctx.resolved(dep),
        ctx.runtime_arg("device"),
    ]
    given += [ctx.resolved(dep).path, ctx.resolved(dep).vocab_size]
    assert encode(given, "config") == [
        {"placeholder": "output_path"},
        {"placeholder": "prefix"},
        {"placeholder": "region"},
        {"placeholder": "artifact:raw/poems@2026.07.01"},
        {"placeholder": "resolved:raw/poems@2026.07.01"},
        {"placeholder": "runtime_arg:device"},
        {"placeholder": "artifact:raw/poems@2026.07.01"},
        {"placeholder": "artifact:raw/poems@2026.07.01.vocab_size"},
    ]


def test_text_that_only_looks_like_a_placeholder_is_text():
    assert encode("\x00separator\x00", "config") == "\x00separator\x00"


# What is refused, and how


def generator():
    yield 1


CYCLE: list = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            lambda x: x,
            r"<lambda at test_fingerprint\.py:\d+> has no stable encoding: define it as a module-level function",
        ),
        (generator(), r"builtins\.generator object has no stable encoding: pass a tuple of what it yields"),
        (threading.Lock(), r"_thread\.lock object has no stable encoding: make it a frozen dataclass"),
        (math, r"builtins\.module object has no stable encoding: pass its name"),
        (
            object(),
            r"builtins\.object object has no stable encoding: make it a frozen dataclass, or give .* __fingerprint__",
        ),
        (CYCLE, r"contains itself"),
        (
            ArtifactStep(name="a/b", version="dev", run="m:f"),
            r"\(a/b@dev\) is a handle.*pass ctx\.artifact_path\(dep\) or",
        ),
        (functools.partial(lambda x: x), r"<lambda at"),
        (operator.itemgetter(1), r"operator\.itemgetter object has no stable encoding"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_has_no_stable_encoding_is_refused_with_path_and_remedy(value, message):
    with pytest.raises(FingerprintError, match=r"^config\.one\[\"schedule\"\]\[1\]\S*: .*" + message):
        encode(Pair({"schedule": [0, value]}), "config")


def test_an_open_file_is_refused_with_the_remedy(tmp_path):
    with (tmp_path / "f").open("w") as file, pytest.raises(FingerprintError, match=r"pass the file's path"):
        encode(file, "config")


def test_a_closure_over_something_unstable_is_refused_by_the_name_of_the_variable():
    with pytest.raises(FingerprintError, match=r"^config\.factor: _thread\.lock object"):
        encode(scaler(threading.Lock()), "config")


def nested(depth):
    return functools.reduce(lambda inner, _: [inner], range(depth), 1)


def test_deep_nesting_works_up_to_a_limit_and_is_then_refused_clearly():
    assert encode(nested(MAX_DEPTH), "config")
    with pytest.raises(FingerprintError, match=r"^config\[0\].* … .*: is nested more than 100 deep: make it flatter"):
        encode(nested(5000), "config")


def test_a_stack_that_is_nearly_full_is_a_clear_error():
    def deeper(levels):
        return deeper(levels - 1) if levels else encode(nested(MAX_DEPTH), "config")

    with pytest.raises(FingerprintError, match="nested too deeply for Python's stack"):
        any(deeper(levels) is None for levels in range(0, sys.getrecursionlimit(), 20))


# The fingerprint


def test_a_fingerprint_is_shown_by_scheme_and_the_beginning_of_its_hash():
    assert str(Fingerprint(1, "0123456789abcdef" * 4, {})) == "1:0123456789abcdef"


def test_fingerprints_compare_by_scheme_and_hash():
    one = Fingerprint(1, digest({"config": 1}), {"config": 1})
    assert one == Fingerprint(1, digest({"config": 1}), {"config": 1})
    assert one != Fingerprint(1, digest({"config": True}), {"config": True})
    assert one != Fingerprint(2, digest({"config": 1}), {"config": 1})
    assert len({one, Fingerprint(1, digest({"config": 1}), {})}) == 1


# The same everywhere


def test_recorded_fingerprints_still_hold():
    """Changing the golden file means that every recorded artifact drifts: say so in CHANGELOG.md, and raise SCHEME."""
    assert golden_values.fingerprints() == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_recorded_digests_are_of_the_recorded_json():
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for recorded in [*golden["values"].values(), *golden["recipes"].values()]:
        assert digest(recorded["json"]) == recorded["digest"]
    digests = [recorded["digest"] for recorded in golden["values"].values()]
    assert len(set(digests)) == len(digests) == len(golden_values.VALUES)


STUB = '''"""Stands in for msgspec, which this Python does not have: a fingerprint is the same without it."""
ValidationError = ValueError

class json:
    class Encoder:
        def __init__(self, order):
            pass

        def encode(self, value):
            raise OverflowError

class _Names(type):
    def __getattr__(cls, name):
        return type(name, (), {})

class inspect(metaclass=_Names):
    def type_info(kind):
        return None
'''


def child(command, *, path=(), seed="0"):
    """What a child process prints that finds our source and nothing else of this environment."""
    places = os.pathsep.join(map(str, [ROOT / "src", ROOT, *path]))
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONPATH": places, "PYTHONHASHSEED": seed}
    done = subprocess.run(command, env=environ, capture_output=True, cwd=ROOT, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def interpreter(version):
    """A Python of ``version`` that starts, and its full version; ``None`` if this machine has none."""
    found = [
        shutil.which(f"python{version}"),
        *sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))),
    ]
    for candidate in filter(None, found):
        probe = [candidate, "-c", "import sys; print('.'.join(map(str, sys.version_info[:3])))"]
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.startswith(f"{version}."):
            return candidate, done.stdout.strip()
    return None


SUPPORTED = {version: interpreter(version) for version in ("3.11", "3.12", "3.13", "3.14")}
"""By version: what was found. The test's ids say which Pythons really ran."""


@pytest.mark.parametrize(
    "version",
    SUPPORTED,
    ids=lambda version: f"Python-{SUPPORTED[version][1]}" if SUPPORTED[version] else f"Python-{version}-is-not-here",
)
def test_every_python_and_hash_seed_takes_the_recorded_fingerprints(version, tmp_path):
    if SUPPORTED[version] is None:
        pytest.skip(f"no Python {version} on this machine: NOT held for it here")
    executable, full_version = SUPPORTED[version]
    (tmp_path / "msgspec.py").write_text(STUB)
    for seed in ("0", "1", "4242", "random"):
        printed = child([executable, "-m", "tests.execution.golden_values"], path=[tmp_path], seed=seed)
        assert json.loads(printed) == json.loads(GOLDEN.read_text(encoding="utf-8")), (full_version, seed)


SCRIPT = """
import enum, sys
from dataclasses import dataclass
from marin.execution.fingerprint import digest, encode

class Schedule(enum.Enum):
    COSINE = 1

@dataclass(frozen=True)
class Config:
    schedule: Schedule

def step(config):
    return config

def main():
    sys.stdout.write(digest(encode([Config(Schedule.COSINE), Config, step], "config")))

if __name__ == "__main__":
    main()
"""


def test_a_script_has_one_fingerprint_whether_it_is_run_or_imported(tmp_path):
    script = tmp_path / "my_pipeline.py"
    script.write_text(SCRIPT)
    python = sys.executable
    run = child([python, str(script)])
    assert child([python, "-c", "import my_pipeline; my_pipeline.main()"], path=[tmp_path]) == run
    assert child([python, "-m", "my_pipeline"], path=[tmp_path]) == run
    assert len(run) == 64


def test_a_module_of_a_package_has_one_fingerprint_whether_it_is_run_or_imported(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pipeline.py").write_text(SCRIPT)
    run = child([sys.executable, "-m", "project.pipeline"], path=[tmp_path])
    assert child([sys.executable, "-c", "import project.pipeline as p; p.main()"], path=[tmp_path]) == run


def test_text_forms_of_types_that_changed_between_pythons_are_one():
    assert alike(typing.Optional[int], int | None)  # noqa: UP045
    assert alike(int | str, str | int)
    assert encode(pathlib.Path, "config") == {"class": "pathlib:Path"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
        max_leaves=12,
    )
)
def test_the_hashed_bytes_are_plain_sorted_json(encoded):
    plain = json.dumps(encoded, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical(encoded) == plain.encode()


def test_every_character_is_hashed_as_plain_json_writes_it():
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000)]))
    assert canonical(text) == json.dumps(text, ensure_ascii=False).encode()
