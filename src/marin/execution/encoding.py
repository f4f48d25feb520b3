"""The typed JSON that a fingerprint is the hash of: values that differ in type or content never encode alike.

``None``, ``bool``, ``int`` and ``str`` are themselves and a list is a list. Everything else is an object whose keys
say what it is: ``{"float": "0.1"}``, ``{"tuple": [1, 2]}``, ``{"path": "/data"}``. A dict is tagged as well, so that
no dict of a user's can look like a tag. People read this JSON in records, and ``drift`` compares it.

The file is long because the list of types that have a stable encoding is: it is one table, kept in one place.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import functools
import hashlib
import json
import re
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final, TypeAlias

import msgspec

from marin.errors import FingerprintError
from marin.execution.array_encoding import encode_numpy, is_numpy
from marin.execution.context import MARK, PathPlaceholder, Placeholder, ResolvedPlaceholder, StepPath
from marin.execution.naming import class_name, describe, find, is_found, is_lambda, is_wrapped, qualified_name
from marin.execution.record_fields import Field, attributes, record_fields

JSON: TypeAlias = "bool | int | str | list[JSON] | dict[str, JSON] | None"

MAX_DEPTH = 100
"""Deepest nesting of a config. A guard with a clear message, well before Python's own limit."""

MAX_EXACT_INTEGER = 2**53
"""Beyond it JSON readers differ; such integers are text in hexadecimal, which has no limit on digits."""

MAX_INLINE_BYTES = 256
"""Longer byte strings enter by their hash, so that records stay small."""

EXECUTION_ONLY: Final = "marin.execution_only"
ABSENT_MEANS: Final = "marin.absent_means"

# Only what a context really hands out; other text with NULs is ordinary text.
_TOKEN = re.compile(f"{MARK}(output_path|prefix|artifact:[^{MARK}]+){MARK}")
_PATHS = (Path, PosixPath, WindowsPath, PurePath, PurePosixPath, PureWindowsPath)
_BUILTIN_BASES = (
    str,
    int,
    float,
    complex,
    bytes,
    bytearray,
    OrderedDict,
    defaultdict,
    dict,
    list,
    tuple,
    set,
    frozenset,
)


_QUICK = msgspec.json.Encoder(order="sorted")  # ten times as fast
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(encoded: JSON) -> bytes:
    """The bytes of an encoding. Equal exactly if the encodings are; unlike ``==``, keeps ``1`` and ``True`` apart.

    >>> canonical({"b": 1, "a": True})
    b'{"a":true,"b":1}'
    """
    try:
        quick = _QUICK.encode(encoded)
    except OverflowError:  # no encoding of ours has such integers; a record that somebody else wrote may
        quick = b"\\"
    # What is escaped, and how, must not hang on a library's release: without escapes there is one way to write it.
    return quick if b"\\" not in quick else _CANONICAL.encode(encoded).encode()


def refuse_handle(handle: Any) -> JSON:
    """What becomes of a handle inside a config."""
    del handle
    raise FingerprintError(
        "is a handle, not a value: pass ctx.artifact_path(dep) or ctx.resolved(dep), and name it in deps=(...)"
    )


def encode(value: object, path: str, *, handle: Callable[[Any], JSON] = refuse_handle) -> JSON:
    """The typed JSON of ``value``. ``path`` is what messages call it, such as ``config``.

    Raises ``FingerprintError`` with the path to a value that has no stable encoding.

    >>> encode({"lr": 0.1, "betas": (1, 2)}, "config")
    {'dict': {'lr': {'float': '0.1'}, 'betas': {'tuple': [1, 2]}}}
    """
    encoder = _Encoder(path, handle)
    try:
        return encoder.encode(value)
    except RecursionError as fault:
        raise encoder.fault(_TOO_DEEP) from fault


def encode_fields(fields: Iterable[Field], path: str, *, handle: Callable[[Any], JSON] = refuse_handle) -> JSON:
    """The typed JSON of fields by name, without those that their metadata leaves out."""
    encoder = _Encoder(path, handle)
    try:
        return {**encoder.fields(fields)}
    except RecursionError as fault:
        raise encoder.fault(_TOO_DEEP) from fault


_TOO_DEEP = "is nested too deeply for Python's stack: make it flatter"


class _Encoder:
    """Encodes one value, and knows where in it it is."""

    def __init__(self, root: str, handle: Callable[[Any], JSON]) -> None:
        self._trail: list[str | tuple[Any]] = [root]  # a key of a dict is written out only if there is a fault
        self._open = list[int]()
        self.handle = handle

    def fault(self, what: str) -> FingerprintError:
        steps = [step if isinstance(step, str) else _subscript(step[0]) for step in self._trail]
        trail = steps if len(steps) <= 12 else [*steps[:6], " … ", *steps[-5:]]
        return FingerprintError(f"{''.join(trail)}: {what}")

    def encode(self, value: Any) -> JSON:
        cls = type(value)
        if value is None or cls is bool:
            return value
        if cls is int:
            return _integer(value)
        if cls is str or cls is StepPath:
            text = str(value)
            return _text(text) if MARK not in text and "](" not in text else self.located("", _text, text)
        if isinstance(value, Placeholder):
            return _placeholder(value)
        leaf = _LEAVES.get(cls)
        if leaf is not None:
            return self.located("", leaf, value)
        if len(self._open) >= MAX_DEPTH:
            raise self.fault(f"is nested more than {MAX_DEPTH} deep: make it flatter")
        if id(value) in self._open:
            if isinstance(value, types.FunctionType):
                raise self.fault(
                    f"{describe(value)} calls itself, which has no stable encoding: move it to module level"
                )
            raise self.fault(f"{describe(value)} contains itself: it has no stable encoding")
        self._open.append(id(value))
        container = _CONTAINERS.get(cls)
        encoded = container(self, value) if container is not None else self._by_kind(value)
        self._open.pop()
        return encoded

    def at(self, step: str | tuple[Any], value: Any) -> JSON:
        """The encoding of a part of the value at hand; ``step`` leads to it: text, or the key of a dict in a tuple."""
        self._trail.append(step)
        encoded = self.encode(value)
        self._trail.pop()
        return encoded

    def items(self, values: Iterable[Any]) -> list[JSON]:
        return [self.at(f"[{index}]", value) for index, value in enumerate(values)]

    def named(self, values: Mapping[str, Any]) -> dict[str, JSON]:
        return {name: self.at(f".{name}", value) for name, value in values.items()}

    def members(self, values: Iterable[Any]) -> list[JSON]:
        return sorted((self.at("{…}", value) for value in values), key=canonical)

    def pairs(self, mapping: Iterable[tuple[Any, Any]]) -> list[JSON]:
        return [[self._key(key), self.at((key,), value)] for key, value in mapping]

    def _key(self, key: Any) -> JSON:
        return key if type(key) is str and key.isascii() and MARK not in key else self.at("{…}", key)

    def dict(self, mapping: Iterable[tuple[Any, Any]]) -> JSON:
        pairs = typing.cast("list[list[JSON]]", self.pairs(mapping))
        if all(isinstance(key, str) for key, _ in pairs):
            return {typing.cast(str, key): value for key, value in pairs}
        return typing.cast(JSON, sorted(pairs, key=canonical))

    def fields(self, fields: Iterable[Field]) -> dict[str, JSON]:
        """Encoded fields, without those that their metadata leaves out."""
        encoded = dict[str, JSON]()
        for name, value, metadata in fields:
            if metadata.get(EXECUTION_ONLY):
                continue
            field = self.at(f".{name}", value)
            if ABSENT_MEANS in metadata and canonical(field) == canonical(self.at(f".{name}", metadata[ABSENT_MEANS])):
                continue
            encoded[name] = field
        return encoded

    def _by_kind(self, value: Any) -> JSON:
        for encoding in _KINDS:
            if (encoded := encoding(self, value)) is not None:
                return encoded
        raise self._refusal(value)

    def _refusal(self, value: object) -> FingerprintError:
        remedy = "make it a frozen dataclass, or give its class a method __fingerprint__"
        if isinstance(value, types.FunctionType):
            remedy = "define it as a module-level function"
        elif isinstance(value, types.ModuleType):
            remedy = "pass its name"
        elif hasattr(type(value), "__array__"):
            remedy = "pass numpy.asarray(...) of it"
        elif hasattr(type(value), "fileno"):
            remedy = "pass the file's path"
        elif hasattr(type(value), "__next__"):
            remedy = "pass a tuple of what it yields"
        return self.fault(f"{describe(value)} has no stable encoding: {remedy}")

    def located(self, subject: str, encoding: Callable[..., JSON], *arguments: Any) -> JSON:
        """What ``encoding`` gives; its fault gets the path."""
        try:
            return encoding(*arguments)
        except FingerprintError as fault:
            raise self.fault(f"{subject}{fault}") from None


def _subscript(key: object) -> str:
    """How people write a member of a dict: ``["poems"]``, ``[2]``."""
    text = json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)
    return f"[{text if len(text) <= 60 else text[:59] + '…'}]"


def _integer(value: int) -> JSON:
    return value if -MAX_EXACT_INTEGER < value < MAX_EXACT_INTEGER else {"int": hex(value)}


def _text(text: str) -> JSON:
    """Text; a path of the context inside it becomes a placeholder node.

    Raises ``FingerprintError`` for such a path behind another one.
    """
    if MARK not in text:
        return _plain_text(text)
    parts = _TOKEN.split(text)
    for before in parts[0:-1:2]:
        # A path of the context is absolute; only text that took it for a relative one ends so.
        if before.endswith("/") and not before.endswith("://"):
            raise FingerprintError(
                f"a path of the context was joined behind {before!r}, as os.path.abspath does: pass it on as it is"
            )
    pieces: list[JSON] = [
        {"placeholder": part} if index % 2 else _plain_text(part)
        for index, part in enumerate(parts)
        if index % 2 or part
    ]
    return pieces[0] if len(pieces) == 1 else {"template": pieces} if pieces else ""


_HANDLE_IN_TEXT = re.compile(r"\w+\[\w+\]\(([^()\s@]+@[^()\s@]+)\)")


def _plain_text(text: str) -> JSON:
    if "](" in text and (handle := _HANDLE_IN_TEXT.search(text)):
        raise FingerprintError(
            f"holds the handle of {handle[1]} turned into text, which leads nowhere: "
            "pass ctx.artifact_path(dep), or to apply the handle itself"
        )
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Lone surrogates (undecodable file names) are not JSON.
        return {"text": text.encode("unicode_escape").decode("ascii")}
    return text


def _placeholder(value: Placeholder) -> JSON:
    if isinstance(value, PathPlaceholder):
        return _text(str(value)) if value.tail else {"placeholder": value.token}
    # A dependency's typed artifact is another thing than its path, and has the same token.
    if isinstance(value, ResolvedPlaceholder):
        return {"placeholder": value.token.replace("artifact:", "resolved:", 1)}
    return {"placeholder": value.token}


def _bytes(value: bytes | bytearray) -> JSON:
    if len(value) <= MAX_INLINE_BYTES:
        return value.hex()
    return {"sha256": hashlib.sha256(value).hexdigest(), "length": len(value)}


def _path(value: PurePath) -> JSON:
    return _text(value.as_posix())


def _range(value: range) -> JSON:
    """Ranges of the same numbers are equal, however their end was written."""
    if not value:
        return {"range": [0, 0, 1]}
    first, last = value[0], value[-1]
    step = value.step if first != last else 1
    return {"range": [_integer(first), _integer(last + (1 if step > 0 else -1)), _integer(step)]}


def _is_single_bit(bits: Any) -> bool:
    return isinstance(bits, int) and bits > 0 and bits & (bits - 1) == 0


def _pattern(value: re.Pattern[Any]) -> JSON:
    pattern: Any = value.pattern
    text: JSON = _text(pattern) if isinstance(pattern, str) else {"bytes": bytes(pattern).hex()}
    # DEBUG prints while compiling and matches the same.
    return {"pattern": text, "flags": int(value.flags) & ~int(re.DEBUG)}


def _timezone(value: datetime.timezone) -> JSON:
    offset = value.utcoffset(None)
    return {"timezone": [offset.days, offset.seconds, offset.microseconds], "name": _plain_text(value.tzname(None))}


_LEAVES: dict[type, Callable[[Any], JSON]] = {
    float: lambda value: {"float": float.__repr__(value)},
    complex: lambda value: {"complex": [repr(value.real), repr(value.imag)]},
    bytes: lambda value: {"bytes": _bytes(value)},
    bytearray: lambda value: {"bytearray": _bytes(value)},
    range: _range,
    re.Pattern: _pattern,
    datetime.date: lambda value: {"date": value.isoformat()},
    datetime.timedelta: lambda value: {"timedelta": [value.days, value.seconds, value.microseconds]},
    datetime.timezone: _timezone,
    types.EllipsisType: lambda value: {"constant": "Ellipsis"},
    types.NotImplementedType: lambda value: {"constant": "NotImplemented"},
    **dict.fromkeys(_PATHS, lambda value: {"path": _path(value)}),
}


def _dict(encoder: _Encoder, value: dict[Any, Any]) -> JSON:
    return {"dict": encoder.dict(dict.items(value))}


def _ordered_dict(encoder: _Encoder, value: OrderedDict[Any, Any]) -> JSON:
    return {"ordered_dict": encoder.pairs(OrderedDict.items(value))}


def _default_dict(encoder: _Encoder, value: defaultdict[Any, Any]) -> JSON:
    factory = encoder.at(".default_factory", value.default_factory)
    return {"default_dict": encoder.dict(dict.items(value)), "default_factory": factory}


def _partial(encoder: _Encoder, value: functools.partial[Any]) -> JSON:
    encoded: dict[str, JSON] = {"partial": encoder.at(".func", value.func)}
    if value.args:
        encoded["arguments"] = encoder.items(value.args)
    if value.keywords:
        encoded["keywords"] = encoder.dict(value.keywords.items())
    return encoded


def _moment(encoder: _Encoder, value: datetime.datetime | datetime.time) -> JSON:
    encoded: dict[str, JSON] = {type(value).__name__: value.replace(tzinfo=None, fold=0).isoformat()}
    if value.tzinfo is not None:
        encoded["tzinfo"] = encoder.at(".tzinfo", value.tzinfo)
    return {**encoded, "fold": 1} if value.fold else encoded


def _namespace(encoder: _Encoder, value: types.SimpleNamespace) -> JSON:
    return {"object": "types:SimpleNamespace", "fields": encoder.named(vars(value))}


_CONTAINERS: dict[type, Callable[[_Encoder, Any], JSON]] = {
    list: lambda encoder, value: encoder.items(value),
    tuple: lambda encoder, value: {"tuple": encoder.items(value)},
    set: lambda encoder, value: {"set": encoder.members(value)},
    frozenset: lambda encoder, value: {"frozenset": encoder.members(value)},
    dict: _dict,
    OrderedDict: _ordered_dict,
    defaultdict: _default_dict,
    deque: lambda encoder, value: {"deque": encoder.items(value), "maxlen": value.maxlen},
    slice: lambda encoder, value: {"slice": encoder.items((value.start, value.stop, value.step))},
    functools.partial: _partial,
    types.MappingProxyType: lambda encoder, value: {"mapping_proxy": encoder.dict(value.items())},
    types.SimpleNamespace: _namespace,
    datetime.datetime: _moment,
    datetime.time: _moment,
}


# Kinds: each gives the encoding, or None for "not of my kind". Their order, in _KINDS, matters.


def _standard_class(encoder: _Encoder, value: Any) -> JSON:
    """Types of the standard library whose modules are too heavy to import for everybody."""
    del encoder
    cls = type(value)
    encoding = _RARE.get((cls.__module__, cls.__qualname__))
    return encoding(value) if encoding is not None and is_found(cls, cls.__module__, cls.__qualname__) else None


_RARE: dict[tuple[str, str], Callable[[Any], JSON]] = {
    # The exponent's letter depends on the thread's decimal context.
    ("decimal", "Decimal"): lambda value: {"decimal": str(value).replace("e", "E")},
    ("fractions", "Fraction"): lambda value: {"fraction": [_integer(value.numerator), _integer(value.denominator)]},
    ("uuid", "UUID"): lambda value: {"uuid": str(value)},
    ("zoneinfo", "ZoneInfo"): lambda value: {"zoneinfo": value.key} if value.key else None,
}


def _own_encoding(encoder: _Encoder, value: Any) -> JSON:
    cls = type(value)
    if isinstance(value, type) or not callable(getattr(cls, "__fingerprint__", None)):
        return None
    return {"object": class_name(cls), "fingerprint": encoder.at(".__fingerprint__()", cls.__fingerprint__(value))}


def _graph_handle(encoder: _Encoder, value: object) -> JSON:
    # lazy imports this module through recipe; a handle can exist only if it is loaded.
    handle_class: Any = find("marin.execution.lazy", "ArtifactStep")
    if handle_class is None or not isinstance(value, handle_class):
        return None
    return encoder.located(f"{value!r} ", encoder.handle, value)


def _enumeration(encoder: _Encoder, value: object) -> JSON:
    if not isinstance(value, enum.Enum):
        return None
    if isinstance(value, enum.Flag):
        return _flag(encoder, value)
    name: Any = value.name
    return {"enum": class_name(type(value)), "member": name} if isinstance(name, str) else None


def _flag(encoder: _Encoder, value: enum.Flag) -> JSON:
    single = {
        name: bit for name, bit in type(value).__members__.items() if _is_single_bit(bit.value) and bit.name == name
    }
    held = {name: bit for name, bit in single.items() if value.value & bit.value}
    rest = value.value & ~functools.reduce(lambda bits, bit: bits | bit.value, held.values(), 0)
    encoded: dict[str, JSON] = {"enum": class_name(type(value)), "members": list[JSON](sorted(held))}
    return {**encoded, "bits": _integer(rest)} if rest else encoded


def _array(encoder: _Encoder, value: object) -> JSON:
    if not is_numpy(value):
        return None
    return encoder.located("", encode_numpy, value, encoder.encode)


def _record(encoder: _Encoder, value: Any) -> JSON:
    if isinstance(value, type) or (fields := record_fields(value)) is None:
        return None
    encoded: dict[str, JSON] = {"object": class_name(type(value)), "fields": encoder.fields(fields)}
    content = _builtin_content(encoder, value)
    return encoded if content is None else {**encoded, "value": content}


def _path_subclass(encoder: _Encoder, value: object) -> JSON:
    # A user's own path class may mean something else by its text.
    if not isinstance(value, PurePath):
        return None
    return {"subclass": class_name(type(value)), "value": _path(value)}


def _namedtuple(encoder: _Encoder, value: Any) -> JSON:
    names = getattr(type(value), "_fields", None)
    if not isinstance(value, tuple) or not isinstance(names, tuple) or len(names) != tuple.__len__(value):
        return None
    fields = encoder.fields((str(name), item, {}) for name, item in zip(names, tuple.__iter__(value), strict=True))
    return _with_attributes(encoder, {"object": class_name(type(value)), "fields": fields}, value)


def _builtin_subclass(encoder: _Encoder, value: Any) -> JSON:
    content = _builtin_content(encoder, value)
    if content is None:
        return None
    return _with_attributes(encoder, {"subclass": class_name(type(value)), "value": content}, value)


def _builtin_content(encoder: _Encoder, value: Any) -> JSON:
    """The plain value inside an instance of a subclass of a built-in type."""
    for base, content in _BUILTIN_CONTENT.items():
        if isinstance(value, base):
            return content(encoder, value)
    return None


def _with_attributes(encoder: _Encoder, encoded: dict[str, JSON], value: object) -> JSON:
    held = attributes(value)
    return {**encoded, "attributes": encoder.named(held)} if held else encoded


def _class(encoder: _Encoder, value: object) -> JSON:
    if isinstance(value, type):
        return {"class": class_name(value)}
    return None


def _type_form(encoder: _Encoder, value: object) -> JSON:
    origin: Any = typing.get_origin(value)
    if origin is None:
        return None
    arguments: list[JSON] = encoder.items(typing.get_args(value))
    # int | str is str | int, and since Python 3.14 also Union[int, str].
    if origin in (typing.Union, types.UnionType):
        return {"union": sorted(arguments, key=canonical)}
    if origin is typing.Literal:
        return {"literal": sorted(arguments, key=canonical)}
    return {"generic": encoder.encode(origin), "arguments": arguments}


def _special_form(encoder: _Encoder, value: object) -> JSON:
    if type(value).__module__ == "typing" and isinstance(name := getattr(value, "_name", None), str):
        return {"class": f"typing:{name}"}
    return None


def _bound_method(encoder: _Encoder, value: Any) -> JSON:
    if isinstance(value, types.MethodType):
        return {"method": encoder.encode(value.__func__), "self": encoder.at(".__self__", value.__self__)}
    owner = getattr(value, "__self__", None)
    if not isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
        return None
    if owner is None or isinstance(owner, types.ModuleType):
        return None
    return {"method": value.__name__, "self": encoder.at(".__self__", owner)}


def _descriptor(encoder: _Encoder, value: Any) -> JSON:
    if isinstance(value, types.MethodDescriptorType | types.WrapperDescriptorType | types.GetSetDescriptorType):
        return {"function": f"{class_name(value.__objclass__)}.{value.__name__}"}
    return None


def _found_by_name(encoder: _Encoder, value: Any) -> JSON:
    """Functions, and callables that act like one (jitted, cached, ufuncs), which a module has under their name."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(qualname, str) and callable(value)):
        return None
    if is_found(value, module, qualname):
        return {"function": qualified_name(module, qualname)}
    return None


def _function(encoder: _Encoder, value: object) -> JSON:
    """A function that its module does not have under its name: nested, decorated, or shadowed by its wrapper."""
    if not isinstance(value, types.FunctionType) or is_lambda(value):
        return None
    encoded: dict[str, JSON] = {"function": qualified_name(str(value.__module__), value.__qualname__)}
    code = value.__code__
    if code.co_qualname != value.__qualname__:
        encoded["code"] = qualified_name(str(value.__globals__.get("__name__", "")), code.co_qualname)
    if is_wrapped(value):
        encoded["wrapped"] = True
    cells = dict[str, Any]()
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that nothing was put into yet
            cells[name] = cell.cell_contents
    if cells:
        encoded["cells"] = encoder.named(cells)
    if value.__defaults__:
        encoded["defaults"] = encoder.items(value.__defaults__)
    if value.__kwdefaults__:
        encoded["keyword_defaults"] = encoder.named(value.__kwdefaults__)
    return encoded


# The type's own conversion and iteration: a subclass may print itself, or list its members, in another way.
_BUILTIN_CONTENT: dict[type, Callable[[_Encoder, Any], JSON]] = {
    str: lambda encoder, value: encoder.encode(str.__str__(value)),
    int: lambda encoder, value: encoder.encode(int.__int__(value)),
    float: lambda encoder, value: encoder.encode(float.__float__(value)),
    complex: lambda encoder, value: encoder.encode(complex.__complex__(value)),
    bytes: lambda encoder, value: encoder.encode(bytes(memoryview(value))),
    bytearray: lambda encoder, value: encoder.encode(bytearray(memoryview(value))),
    OrderedDict: _ordered_dict,
    defaultdict: _default_dict,
    dict: _dict,
    list: lambda encoder, value: encoder.encode(list[Any](list.__iter__(value))),
    tuple: lambda encoder, value: encoder.encode(tuple[Any, ...](tuple.__iter__(value))),
    set: lambda encoder, value: encoder.encode(set[Any](set.__iter__(value))),
    frozenset: lambda encoder, value: encoder.encode(frozenset[Any](frozenset.__iter__(value))),
}

_KINDS: tuple[Callable[[_Encoder, Any], JSON], ...] = (
    _own_encoding,
    _graph_handle,
    _standard_class,
    _enumeration,
    _array,
    _record,
    _path_subclass,
    _namedtuple,
    _builtin_subclass,
    _class,
    _type_form,
    _special_form,
    _bound_method,
    _descriptor,
    _found_by_name,
    _function,
)
