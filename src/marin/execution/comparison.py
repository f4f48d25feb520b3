"""Two artifacts side by side, told from their records alone. Pure.

A record is taken as JSON, not as our types: so a field that another Marin has written is compared too.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from marin.execution.drift import compare, holds_names, recipe_values
from marin.execution.encoding import canonical
from marin.execution.showing import shorten_both, show, show_both


class Absent(Enum):
    """In place of a value that one side does not have."""

    ABSENT = "-"


ABSENT: Final = Absent.ABSENT

SECTIONS = ("artifact", "recipe", "inputs", "runtime", "result", "data", "code", "provenance", "other")
"""What of a record is compared, in the order in which it is told."""

_PLAIN_NAME = re.compile(r"[\w-]+")
_DIGEST = re.compile(r"((?:\d+:)?[0-9a-f]{16})[0-9a-f]{48}")
"""Of a sha256 the first digits are enough for people, as everywhere."""

_TOLD_ELSEWHERE = {"fingerprint", "config", "deps", "runtime_args", "result", "manifest", "code", "provenance"}
_FACTS = ("build_id", "data", "source", "artifact_type", "log", "started", "finished", "seconds")
_ATTEMPT_FACTS = ("build_id", "started", "error", "frame", "log")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One value on both sides. ``a`` and ``b`` are JSON, in the recipe typed JSON; ``shown``: their text, shortened."""

    section: str
    key: str
    a: Any
    b: Any
    shown: tuple[str, str]

    @property
    def is_same(self) -> bool:
        return self.a is self.b or (ABSENT not in (self.a, self.b) and canonical(self.a) == canonical(self.b))

    @property
    def difference(self) -> float | int | None:
        """By how much a number has grown."""
        before, after = _number(self.a), _number(self.b)
        return None if before is None or after is None else after - before or None

    @property
    def difference_text(self) -> str:
        """The difference, and its share of the old value."""
        grown, before = self.difference, _number(self.a)
        if grown is None:
            return ""
        share = f" ({_percent(100 * grown / abs(before))})" if before else ""
        return f"{grown:+,}{share}" if isinstance(grown, int) else f"{grown:+.4g}{share}"


def _percent(share: float) -> str:
    """With three digits, and all that are before the point.

    >>> _percent(0.12345), _percent(3280.4), _percent(1e9)
    ('+0.123 %', '+3,280 %', '+1e+09 %')
    """
    return f"{share:+,.0f} %" if 1000 <= abs(share) < 1e6 else f"{share:+.3g} %"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """``rows`` by section, equal ones included. ``notes``: what can't be compared, and why."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.is_same)


def compare_records(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str]) -> Comparison:
    """``a`` and ``b``: two records as JSON, without secrets. ``names``: how notes call them."""
    notes: list[str] = []
    rows = [*_artifact_rows(a, b), *_recipe_rows(a, b, names, notes)]
    builds = _part(a, "build"), _part(b, "build")
    rows += _rows("inputs", *map(_inputs, (a, b)))
    for section, key in (("runtime", "runtime_args"), ("result", "result")):
        rows += _rows(section, *(leaves(build.get(key)) for build in builds), quoted=True)
    rows += _rows("data", *(leaves(_data(_part(build, "manifest"))) for build in builds))
    rows += _rows("code", *(_code(_part(build, "code")) for build in builds))
    rows += _rows("provenance", *(_provenance(_part(build, "provenance")) for build in builds))
    rows += _rows("other", *map(_unknown_fields, builds), quoted=True)
    return Comparison(rows=tuple(rows), notes=tuple(notes))


def _data(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with its files by path: a file more must not shift the ones after it."""
    told = {key: value for key, value in manifest.items() if key != "listed"}
    listed = manifest.get("listed")
    if isinstance(listed, list) and listed:
        entries = cast("list[dict[str, Any]]", listed)
        told["file"] = {
            entry.get("path", "?"): {key: entry[key] for key in entry if key != "path"} for entry in entries
        }
    return told


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every value inside of ``value`` by its path, in order.

    >>> leaves({"loss": {"final": 0.5, "steps": [1, 2]}, "done": {}})
    {'loss.final': 0.5, 'loss.steps[0]': 1, 'loss.steps[1]': 2, 'done': {}}
    """
    if value is None and not path:
        return {}
    found: dict[str, Any] = {}
    todo: list[tuple[str, Any]] = [(path, value)]
    while todo:
        here, inner = todo.pop()
        members = list(_members(here, inner))
        if members or not here:
            todo += reversed(members)
        else:
            found[here] = inner
    return found


def _members(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            is_plain = _PLAIN_NAME.fullmatch(key) is not None
            dotted = f"{path}.{key}" if path else key
            yield dotted if is_plain else f"{path}[{json.dumps(key, ensure_ascii=False)}]", inner
    elif isinstance(value, list):
        yield from ((f"{path}[{index}]", inner) for index, inner in enumerate(cast("list[Any]", value)))


def _rows(section: str, a: Mapping[str, Any], b: Mapping[str, Any], *, quoted: bool = False) -> Iterator[Row]:
    for key in dict.fromkeys((*a, *b)):
        one, other = a.get(key, ABSENT), b.get(key, ABSENT)
        shown = shorten_both(*(_text(value, quoted=quoted) for value in (one, other)))
        yield Row(section=section, key=key, a=one, b=other, shown=shown)


def _text(value: Any, *, quoted: bool) -> str:
    if value is ABSENT:
        return ABSENT.value
    if not isinstance(value, str) or quoted:
        return json.dumps(value, ensure_ascii=False)
    digest = _DIGEST.fullmatch(value)
    return value if digest is None else digest[1]


def _artifact_rows(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Row]:
    def facts(record: Mapping[str, Any]) -> dict[str, Any]:
        build, attempt = _part(record, "build"), _part(record, "attempt")
        found = {"name": record.get("name"), "version": record.get("version"), "state": record.get("state")}
        found |= {key: build[key] for key in _FACTS if build.get(key) is not None}
        found |= {f"attempt.{key}": attempt[key] for key in _ATTEMPT_FACTS if attempt.get(key) is not None}
        return found

    return _rows("artifact", facts(a), facts(b))


def _recipe_rows(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, str], notes: list[str]) -> Iterator[Row]:
    prints = [_fingerprint(record) for record in (a, b)]
    digests: list[Any] = [f"{one['scheme']}:{one['digest']}" if one else ABSENT for one in prints]
    yield from _rows("recipe", *({"fingerprint": digest} for digest in digests))
    payloads = [_part(one, "payload") for one in prints]
    for name, record, payload in zip(names, (a, b), payloads, strict=True):
        if not payload:
            known = "" if _part(record, "build") else f", it is {record.get('state')}"
            notes.append(f"{name} keeps no recipe, only its fingerprint{known}")
    if not all(payloads):
        return
    if prints[0]["scheme"] != prints[1]["scheme"]:
        notes.append("the fingerprints have different schemes: the recipes are not compared")
        return
    changes = compare(*payloads)
    for change in changes:
        one, other = (ABSENT if side is None else side for side in (change.old, change.new))
        yield Row(section="recipe", key=change.path, a=one, b=other, shown=_shown(change.path, one, other))
    if not changes and digests[0] != digests[1]:
        notes.append("the recipes differ in a secret, which is not shown")
    before, after = (dict(recipe_values(payload)) for payload in payloads)
    for key, value in before.items():
        if key in after and canonical(value) == canonical(after[key]):
            yield Row(section="recipe", key=key, a=value, b=after[key], shown=_shown(key, value, value))


def _shown(key: str, a: Any, b: Any) -> tuple[str, str]:
    if holds_names(key):
        one, other = (
            ABSENT.value if side is ABSENT else side if isinstance(side, str) else show(side) for side in (a, b)
        )
        return shorten_both(one, other)
    if a is ABSENT or b is ABSENT or a is b:
        one, other = (ABSENT.value if side is ABSENT else show(side) for side in (a, b))
        return one, other
    return show_both(a, b)


def _fingerprint(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """That of the build, else of the attempt, which keeps no recipe."""
    if build := _part(record, "build"):
        fingerprint = _part(build, "fingerprint")
        return fingerprint if {"scheme", "digest"} <= fingerprint.keys() else {}
    attempt = _part(record, "attempt")
    if "fingerprint_digest" not in attempt:
        return {}
    return {"scheme": attempt.get("fingerprint_scheme"), "digest": attempt["fingerprint_digest"]}


def _inputs(record: Mapping[str, Any]) -> dict[str, str]:
    build = _part(record, "build")
    used = build.get("deps") if build else _part(record, "attempt").get("inputs")
    listed = cast("list[Any]", used) if isinstance(used, list) else []
    found = [cast("Mapping[str, Any]", dep) for dep in listed if isinstance(dep, Mapping)]
    return {str(dep.get("name")): f"{dep.get('version')} (build {dep.get('build_id')})" for dep in found}


def _code(code: Mapping[str, Any]) -> dict[str, Any]:
    """Definitions by module and name, installed packages by name and version."""
    found: dict[str, Any] = {}
    for module, part in _part(code, "modules").items():
        for name, digest in _part(part, "definitions").items():
            found[f"{module}.{name}"] = digest
    found |= {f"package {name}": version for name, version in _part(code, "distributions").items()}
    return found | {f"unknown {name}": why for name, why in _part(code, "unknown").items()}


def _provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    told = dict(provenance)
    command = told.get("command")
    if isinstance(command, list):
        told["command"] = shlex.join(str(word) for word in cast("list[Any]", command))
    return leaves(told)


def _unknown_fields(build: Mapping[str, Any]) -> dict[str, Any]:
    return leaves({key: value for key, value in build.items() if key not in _TOLD_ELSEWHERE and key not in _FACTS})


def _part(whole: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = whole.get(key)
    return cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}


def _number(value: Any) -> float | int | None:
    match value:
        case bool():
            return None
        case int() | float():
            return value
        case {"float": str(text)} if text not in ("nan", "inf", "-inf"):
            return float(text)
        case _:
            return None
