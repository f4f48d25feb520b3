"""Short Python-like text for typed JSON: what people read in a warning about drift."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from marin.execution.encoding import JSON, canonical

MAX_WIDTH = 60
"""Longest text of one value, in characters."""

_CONTEXT = 20
"""How much of the equal beginning is kept when long texts differ further on."""

_MAX_DIGITS = 1000
"""Longer integers stay hexadecimal: Python refuses to print very long ones."""


def show(encoded: JSON) -> str:
    """Python-like text of an encoded value, shortened.

    >>> show({"tuple": [1, {"float": "0.5"}, {"path": "/data"}]})
    "(1, 0.5, Path('/data'))"
    """
    return _shortened(_Text(qualified=False).of(encoded))


def show_both(old: JSON, new: JSON) -> tuple[str, str]:
    """The texts of two values that differ, so shortened that the difference is seen.

    >>> show_both("a" * 100 + "b", "a" * 100 + "c")
    ("…aaaaaaaaaaaaaaaaaaab'", "…aaaaaaaaaaaaaaaaaaac'")
    >>> show_both({"class": "old.home:Adam"}, {"class": "new.home:Adam"})
    ('old.home:Adam', 'new.home:Adam')
    """
    before, after = (_Text(qualified=False).of(value) for value in (old, new))
    if before == after:
        before, after = (_Text(qualified=True).of(value) for value in (old, new))
    if before == after:
        before, after = (canonical(value).decode() for value in (old, new))
    return shorten_both(before, after)


def shorten_both(before: str, after: str) -> tuple[str, str]:
    """Two texts, so shortened that the difference is seen.

    >>> shorten_both("a" * 100 + "b", "short")[0]
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'
    """
    if max(len(before), len(after)) <= MAX_WIDTH:
        return before, after
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    if same == len(before) == len(after):
        return _shortened(before), _shortened(after)
    cut = same - _CONTEXT if same > MAX_WIDTH - _CONTEXT else 0
    return _shortened(before, cut), _shortened(after, cut)


def plain(encoded: JSON) -> Any:
    """An encoded config as people write it in JSON or YAML; types that those don't have become text.

    >>> plain({"object": "my:Config", "fields": {"lr": {"float": "0.5"}, "out": {"placeholder": "output_path"}}})
    {'lr': 0.5, 'out': '{output_path}'}
    """
    if isinstance(encoded, list):
        return [plain(member) for member in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if len(encoded) == 1 and type(members := encoded.get("dict")) is dict:  # most; a match takes longer
        return {key: plain(member) for key, member in members.items()}
    match encoded:
        case {"float": str(number)} if number not in ("nan", "inf", "-inf"):
            return float(number)
        case {"placeholder": str(token)}:
            return f"{{{token}}}"
        case {"template": list(parts)}:
            return "".join(part if isinstance(part, str) else str(plain(part)) for part in parts)
        case {"tuple": list(members)}:
            return plain(members)
        case {"dict": dict(members)} | {"object": str(), "fields": dict(members)}:
            return {key: plain(member) for key, member in members.items()}
        case _:
            return _Text(qualified=False).of(encoded)


def _shortened(text: str, start: int = 0) -> str:
    text = f"…{text[start + 1 :]}" if start > 0 else text
    return text if len(text) <= MAX_WIDTH else f"{text[: MAX_WIDTH - 1]}…"


class _Text:
    """Renders encodings; ``qualified`` prints the full names of classes and functions."""

    def __init__(self, *, qualified: bool) -> None:
        self._qualified = qualified

    def of(self, encoded: JSON) -> str:
        if isinstance(encoded, list):
            return f"[{self.items(encoded)}]"
        if not isinstance(encoded, dict):
            return repr(encoded)
        for tag, render in _RENDERERS.items():
            if tag in encoded:
                try:
                    return render(self, encoded)
                except (AttributeError, KeyError, TypeError, ValueError):
                    break  # a record that was not written by us is still shown
        return json.dumps(encoded, ensure_ascii=False)

    def name(self, qualified: str) -> str:
        return qualified if self._qualified else qualified.rpartition(":")[2].rpartition(".")[2]

    def items(self, values: list[JSON]) -> str:
        return ", ".join(self.of(value) for value in values)

    def named(self, values: Mapping[str, JSON]) -> str:
        return ", ".join(f"{name}={self.of(value)}" for name, value in values.items())

    def mapping(self, mapping: Any) -> str:
        pairs = mapping.items() if isinstance(mapping, dict) else mapping
        return "{" + ", ".join(f"{self.of(key)}: {self.of(value)}" for key, value in pairs) + "}"


def _int(text: _Text, node: Any) -> str:
    del text
    digits = node["int"]
    return digits if len(digits) > _MAX_DIGITS else str(int(digits, 16))


def _template(text: _Text, node: Any) -> str:
    parts = (part if isinstance(part, str) else f"{{{text.of(part)}}}" for part in node["template"])
    return f"f{''.join(parts)!r}"


def _bytes(text: _Text, node: Any) -> str:
    del text
    tag = "bytes" if "bytes" in node else "bytearray"
    content = node[tag]
    if isinstance(content, dict):
        return f"{tag}({content['length']} of sha256 {content['sha256'][:12]})"
    return repr(bytes.fromhex(content)) if tag == "bytes" else repr(bytearray.fromhex(content))


def _tuple(text: _Text, node: Any) -> str:
    return f"({text.items(node['tuple'])}{',' * (len(node['tuple']) == 1)})"


def _set(text: _Text, node: Any) -> str:
    return f"{{{text.items(node['set'])}}}" if node["set"] else "set()"


def _object(text: _Text, node: Any) -> str:
    name = text.name(node["object"])
    if "fingerprint" in node:
        return f"{name}({text.of(node['fingerprint'])})"
    value = [text.of(node["value"])] if "value" in node else []
    return f"{name}({', '.join([*value, *filter(None, [text.named(node['fields'])])])})"


def _subclass(text: _Text, node: Any) -> str:
    parts = [text.of(node["value"]), text.named(node.get("attributes", {}))]
    return f"{text.name(node['subclass'])}({', '.join(filter(None, parts))})"


def _enum(text: _Text, node: Any) -> str:
    name = text.name(node["enum"])
    if "member" in node:
        return f"{name}.{node['member']}"
    held = [f"{name}.{member}" for member in node["members"]]
    if "bits" in node:
        held.append(f"{name}({text.of(node['bits'])})")
    return " | ".join(held) or f"{name}(0)"


def _function(text: _Text, node: Any) -> str:
    held = text.named(node.get("cells", {}))
    return f"{text.name(node['function'])}{f' with {held}' if held else ''}"


def _method(text: _Text, node: Any) -> str:
    method = node["method"]
    name = method if isinstance(method, str) else text.of(method)
    return f"{text.of(node['self'])}.{name}"


def _partial(text: _Text, node: Any) -> str:
    parts = [
        text.of(node["partial"]),
        text.items(node.get("arguments", [])),
        *(f"{name}={text.of(value)}" for name, value in node.get("keywords", {}).items()),
    ]
    return f"partial({', '.join(filter(None, parts))})"


def _array(text: _Text, node: Any) -> str:
    shape = ", ".join(str(length) for length in node["shape"])
    digest = node["sha256"][:12] if "sha256" in node else canonical(node["fields"]).decode()
    return f"array({_dtype(node['array'])}, shape ({shape}), sha256 {digest})"


def _dtype(dtype: JSON) -> str:
    return dtype if isinstance(dtype, str) else canonical(dtype).decode()


def _moment(text: _Text, node: Any) -> str:
    tag = "datetime" if "datetime" in node else "time"
    zone = f" {text.of(node['tzinfo'])}" if "tzinfo" in node else ""
    return f"{tag}({node[tag]}{zone}{', fold=1' if 'fold' in node else ''})"


def _call(name: str, *keys: str) -> Callable[[_Text, Any], str]:
    """Renders the named parts of a node as the arguments of ``name``."""

    def render(text: _Text, node: Any) -> str:
        parts = (node[key] for key in keys)
        return f"{name}({', '.join(text.of(part) for part in parts)})"

    return render


_RENDERERS: dict[str, Callable[[_Text, Any], str]] = {
    "int": _int,
    "float": lambda text, node: node["float"],
    "complex": lambda text, node: f"complex({', '.join(node['complex'])})",
    "text": lambda text, node: f"'{node['text']}'",
    "placeholder": lambda text, node: f"<{node['placeholder']}>",
    "handle": lambda text, node: f"<{node['handle']}>",
    "template": _template,
    "bytes": _bytes,
    "bytearray": _bytes,
    "tuple": _tuple,
    "set": _set,
    "frozenset": lambda text, node: f"frozenset({{{text.items(node['frozenset'])}}})",
    "dict": lambda text, node: text.mapping(node["dict"]),
    "default_dict": lambda text, node: (
        f"defaultdict({text.of(node['default_factory'])}, {text.mapping(node['default_dict'])})"
    ),
    "ordered_dict": lambda text, node: f"OrderedDict({text.mapping(node['ordered_dict'])})",
    "mapping_proxy": lambda text, node: f"mappingproxy({text.mapping(node['mapping_proxy'])})",
    "deque": _call("deque", "deque", "maxlen"),
    "slice": lambda text, node: f"slice({text.items(node['slice'])})",
    "range": lambda text, node: f"range({text.items(node['range'])})",
    "path": lambda text, node: f"Path({text.of(node['path'])})",
    "object": _object,
    "subclass": _subclass,
    "enum": _enum,
    "class": lambda text, node: text.name(node["class"]),
    "function": _function,
    "method": _method,
    "partial": _partial,
    "generic": lambda text, node: f"{text.of(node['generic'])}[{text.items(node['arguments'])}]",
    "union": lambda text, node: " | ".join(text.of(part) for part in node["union"]),
    "literal": lambda text, node: f"Literal[{text.items(node['literal'])}]",
    "constant": lambda text, node: node["constant"],
    "datetime": _moment,
    "time": _moment,
    "date": lambda text, node: f"date({node['date']})",
    "timedelta": lambda text, node: "timedelta(days={}, seconds={}, microseconds={})".format(*node["timedelta"]),
    "timezone": lambda text, node: f"timezone({node['name']})",
    "zoneinfo": lambda text, node: f"ZoneInfo({node['zoneinfo']!r})",
    "decimal": lambda text, node: f"Decimal({node['decimal']!r})",
    "fraction": lambda text, node: f"Fraction({text.items(node['fraction'])})",
    "uuid": lambda text, node: f"UUID({node['uuid']!r})",
    "pattern": lambda text, node: f"re.compile({text.of(node['pattern'])}, flags={node['flags']})",
    "dtype": lambda text, node: f"dtype({_dtype(node['dtype'])})",
    "scalar": lambda text, node: f"numpy.{_dtype(node['scalar'])}({text.of(node.get('value', node.get('fields')))})",
    "array": _array,
}
