"""An encoding taken apart into its members, so that two of them can be compared one member at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from marin.execution.encoding import JSON, canonical
from marin.execution.showing import show

Members: TypeAlias = dict[bytes, tuple[str, JSON]]
"""Suffix of the path (``.lr``, ``["poems"]``, ``[2]``) and encoding, by what identifies the member."""


@dataclass(frozen=True)
class Parts:
    """An encoding taken apart: ``head`` must be equal for its members to be compared one by one."""

    head: bytes
    members: Members


def take_apart(encoded: JSON) -> Parts | None:
    """``None`` for a value that is told as a whole."""
    if isinstance(encoded, list):
        return Parts(b"list", _indexed(encoded))
    if not isinstance(encoded, dict):
        return None
    container = next((_CONTAINERS[tag] for tag in _CONTAINERS if tag in encoded), None)
    try:
        return None if container is None else container(encoded)
    except (AttributeError, TypeError, ValueError, KeyError):
        return None  # a record that was not written by us is still told, as a whole


def _sequence(encoded: Any) -> Parts:
    tag = next(tag for tag in ("tuple", "deque") if tag in encoded)
    return Parts(canonical([tag, encoded.get("maxlen")]), _indexed(encoded[tag]))


def _collection(encoded: Any) -> Parts:
    tag = next(tag for tag in ("set", "frozenset") if tag in encoded)
    return Parts(tag.encode(), _distinct((canonical(member), "", member) for member in encoded[tag]))


def _mapping(encoded: Any) -> Parts:
    tag = next(tag for tag in ("dict", "ordered_dict", "default_dict", "mapping_proxy") if tag in encoded)
    members = _distinct((canonical(key), _subscript(key), value) for key, value in _pairs(encoded[tag]))
    if "default_factory" in encoded:
        members[b"."] = (".default_factory", encoded["default_factory"])
    return Parts(tag.encode(), members)


def _object(encoded: Any) -> Parts:
    members = named_members(encoded.get("fields", {}), ".") | named_members(encoded.get("attributes", {}), ". ", ".")
    for part in ("value", "fingerprint"):
        if part in encoded:
            members[f"={part}".encode()] = ("", encoded[part])
    return Parts(canonical([encoded.get("object"), encoded.get("subclass")]), members)


def _callable(encoded: Any) -> Parts:
    head = {key: encoded[key] for key in ("function", "code", "wrapped", "method") if key in encoded}
    members = {
        **named_members({key: encoded[key] for key in ("partial", "self") if key in encoded}, "."),
        **named_members(encoded.get("cells", {}), ".<cell>."),
        **named_members(encoded.get("keyword_defaults", {}), ".<default>."),
    }
    for part in ("arguments", "defaults"):
        indexed = _indexed(encoded.get(part, [])).items()
        members |= {part.encode() + key: (f".{part}{suffix}", value) for key, (suffix, value) in indexed}
    for key, value in _pairs(encoded.get("keywords", {})):
        members[b"keywords" + canonical(key)] = (f".keywords{_subscript(key)}", value)
    return Parts(canonical(head), members)


_CONTAINERS = {
    **dict.fromkeys(("tuple", "deque"), _sequence),
    **dict.fromkeys(("set", "frozenset"), _collection),
    **dict.fromkeys(("dict", "ordered_dict", "default_dict", "mapping_proxy"), _mapping),
    **dict.fromkeys(("object", "subclass"), _object),
    **dict.fromkeys(("function", "method", "partial"), _callable),
}


def _indexed(values: list[JSON]) -> Members:
    return {b"%d" % index: (f"[{index}]", value) for index, value in enumerate(values)}


def named_members(values: Mapping[str, JSON], key: str, suffix: str | None = None) -> Members:
    """Members by name: ``key`` keeps kinds of them apart, ``suffix`` is how their path goes on."""
    return {f"{key}{name}".encode(): (f"{suffix or key}{name}", value) for name, value in values.items()}


def _distinct(members: Iterator[tuple[bytes, str, JSON]]) -> Members:
    """Members by key; NaN may be there twice."""
    seen = Counter[bytes]()
    found = Members()
    for key, suffix, value in members:
        found[b"%s %d" % (key, seen[key])] = (suffix, value)
        seen[key] += 1
    return found


def _pairs(mapping: Any) -> list[tuple[JSON, JSON]]:
    return list(mapping.items()) if isinstance(mapping, dict) else [(key, value) for key, value in mapping]


def _subscript(key: JSON) -> str:
    return f"[{json.dumps(key, ensure_ascii=False) if isinstance(key, str) else show(key)}]"
