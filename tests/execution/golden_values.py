"""Values and recipes whose fingerprints are written down in ``golden/fingerprints.json``.

Run by every Python that is found, so it needs the standard library only:

    python -m tests.execution.golden_values            # prints what this Python makes of them
    python -m tests.execution.golden_values --write    # writes the golden file: every recorded artifact drifts!
"""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import json
import math
import operator
import pathlib
import re
import sys
import types
import typing
import uuid
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from marin.execution.context import PathPlaceholder, ResolvedPlaceholder, StepPath, ValuePlaceholder
from marin.execution.fingerprint import SCHEME, absent_means, digest, encode, execution_only
from marin.execution.lazy import ArtifactStep

GOLDEN = Path(__file__).parent / "golden" / "fingerprints.json"


class Schedule(enum.Enum):
    CONSTANT = "constant"
    COSINE = "cosine"


class Size(enum.IntEnum):
    SMALL = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Access(enum.Flag):
    READ = 1
    WRITE = 2
    BOTH = 3


class Label(str):
    pass


Point = collections.namedtuple("Point", "x y")


@dataclass(frozen=True)
class Adam:
    lr: float
    betas: tuple[float, float] = (0.9, 0.95)
    workers: int = field(default=1, metadata=execution_only())
    z_loss: float = field(default=0.0, metadata=absent_means(0.0))


@dataclass(frozen=True)
class Moved:
    fingerprint_name: typing.ClassVar[str] = "test.Moved"
    size: int


class Ratio:
    def __init__(self, top, bottom):
        self.top, self.bottom = top, bottom

    def __fingerprint__(self):
        return fractions.Fraction(self.top, self.bottom)


def scaled(factor, x=1):
    return factor * x


def scaler(factor):
    def scale(x, offset=0):
        return factor * x + offset

    return scale


def halved(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x) / 2

    return wrapper


@halved
def decorated(x):
    return x


output = PathPlaceholder("output_path")
OPTIONAL_INT = typing.Optional[int]  # noqa: UP045  the older form is what is tested

VALUES = {
    "none": None,
    "true": True,
    "one": 1,
    "one as text": "1",
    "one as float": 1.0,
    "minus zero": -0.0,
    "nan": math.nan,
    "infinity": -math.inf,
    "small float": 5e-324,
    "huge integer": -(10**5000),
    "first inexact integer": 2**53,
    "complex": complex(-0.0, 1.5),
    "unicode": "Grüße, 世界 😀",
    "combining and precomposed": ["e\u0301", "\u00e9"],
    "lone surrogate": "\ud83d\ude00 \\ é",
    "nul": "a\x00b",
    "bytes": b"\x00\xff",
    "many bytes": bytes(1000),
    "bytearray": bytearray(b"ab"),
    "list": [1, [2, []]],
    "tuple": (1, (2, ())),
    "set": {"poems", "prose", 3, None, (1, "a")},
    "frozenset": frozenset({"b", "a"}),
    "dict": {"b": 1, "a": {"c": None}},
    "dict of mixed keys": {1: "int", "1": "text", (1,): "tuple", None: "none"},
    "dict like a tag": {"float": "1.0"},
    "ordered dict": collections.OrderedDict(b=1, a=2),
    "default dict": collections.defaultdict(list, a=[1]),
    "counter": collections.Counter("abca"),
    "deque": collections.deque([1, 2], maxlen=3),
    "mapping proxy": types.MappingProxyType({"a": 1}),
    "namespace": types.SimpleNamespace(a=1),
    "namedtuple": Point(1, 2),
    "subclass of str": Label("x"),
    "path": Path("/data/poems"),
    "relative path": PurePosixPath("a") / "b c",
    "windows path": PureWindowsPath("a\\b"),
    "enum": Schedule.COSINE,
    "int enum": Size.SMALL,
    "str enum": Mode.FAST,
    "flags": Access.READ | Access.WRITE,
    "no flag": Access(0),
    "dataclass": Adam(lr=6e-4),
    "dataclass with a later field": Adam(lr=6e-4, z_loss=1e-4, workers=8),
    "class with a fixed name": Moved(size=1),
    "own encoding": Ratio(2, 4),
    "datetime": datetime.datetime(2026, 7, 1, 12, 30, tzinfo=datetime.UTC),
    "naive datetime": datetime.datetime(2026, 7, 1, 12, 30, 0, 5, fold=1),
    "date": datetime.date(2026, 7, 1),
    "time": datetime.time(12, 30),
    "timedelta": datetime.timedelta(days=-1, microseconds=1),
    "timezone": datetime.timezone(datetime.timedelta(hours=5, minutes=30)),
    "decimal": [decimal.Decimal("1.50"), decimal.Decimal("1e7"), decimal.Decimal("NaN")],
    "fraction": fractions.Fraction(-6, 4),
    "uuid": uuid.UUID(int=1),
    "range": range(0, 10, 3),
    "slice": slice(None, 5),
    "pattern": re.compile(r"\w+", re.IGNORECASE),
    "bytes pattern": re.compile(rb"\w+"),
    "ellipsis": ...,
    "partial": functools.partial(scaled, 2, x=3),
    "function": scaled,
    "builtin": len,
    "function of a private module": [functools.reduce, operator.add, open],
    "method of a class": str.upper,
    "bound method": "x".upper,
    "closure": scaler(3),
    "decorated": decorated,
    "decorated with": halved(scaled),
    "undecorated": decorated.__wrapped__,
    "class": Adam,
    "classes of private modules": [pathlib.Path, pathlib.PurePath, collections.OrderedDict, datetime.date],
    "type forms": [list[int], dict[str, int | None], OPTIONAL_INT, typing.Literal["a", 1], typing.Any],
    "output path": output,
    "below the output path": output / "train",
    "path of a placeholder": Path(f"{output}/train"),
    "between two placeholders": f"{output}:{PathPlaceholder('prefix')}",
    "resolved": ResolvedPlaceholder("artifact:raw/poems@2026.07.01"),
    "runtime argument": ValuePlaceholder("runtime_arg:device"),
    "step path": StepPath("s3://bucket/poems"),
}


def recipes():
    poems = ArtifactStep(name="raw/poems", version="2026.07.01", run="my_project.poems:write")
    external = ArtifactStep.adopt(
        name="raw/external", version="2026.07.01", source="/data/x", kind=poems.artifact_type, config={"lang": "en"}
    )
    tokens = ArtifactStep(
        name="tokenized/poems",
        version="2026.07.02",
        run=scaled,
        deps=(poems, external, poems),
        runtime_args={"device": "cpu"},
        build_config=lambda ctx: {
            "adam": Adam(lr=6e-4),
            "input": ctx.artifact_path(poems),
            "external": ctx.resolved(external),
            "output": ctx.output_path / "train",
            "device": ctx.runtime_arg("device"),
            "region": ctx.region,
        },
    )
    return {step.name: step for step in (poems, external, tokens)}


def encodings():
    return {name: encode(value, name) for name, value in VALUES.items()}


def fingerprints():
    values = {name: {"digest": digest(encoding), "json": encoding} for name, encoding in encodings().items()}
    recorded = {name: step.fingerprint() for name, step in recipes().items()}
    return {
        "scheme": SCHEME,
        "values": values,
        "recipes": {name: {"digest": print_.digest, "json": print_.payload} for name, print_ in recorded.items()},
    }


if __name__ == "__main__":
    text = json.dumps(fingerprints(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if "--write" in sys.argv:
        GOLDEN.write_text(text, encoding="utf-8")
    else:
        sys.stdout.buffer.write(text.encode())
