"""What differs between two recipes, key by key, in the words in which people write them. Pure.

``compare`` takes the typed JSON of two fingerprints of one scheme. See ``showing`` for how values are printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from marin.execution.encoding import JSON, canonical
from marin.execution.members import Members, named_members, take_apart
from marin.execution.showing import show, show_both

__all__ = ["Change", "ChangeKind", "compare", "recipe_values", "show"]

_NODES_OF_TEXT = ("text", "template", "placeholder")
_MAPS = ("dict", "default_dict", "mapping_proxy", "fields", "attributes", "cells", "keyword_defaults", "keywords")
_SECTIONS = ("config", "fields", "function", "artifact_type", "source")


class ChangeKind(StrEnum):
    """What kind of difference it is."""

    LITERAL = "literal"
    DEPENDENCY_VERSION = "dependency version"
    FIELD_ADDED = "field added"
    FIELD_REMOVED = "field removed"
    TYPE = "type"
    FUNCTION = "step function"
    SOURCE = "source"


@dataclass(frozen=True)
class Change:
    """One difference. ``old`` and ``new`` are typed JSON; the one that is not there is ``None``.

    >>> print(Change("config.optimizer.lr", {"float": "0.0006"}, {"float": "0.0008"}, ChangeKind.LITERAL))
    config.optimizer.lr: 0.0006 → 0.0008
    >>> print(Change("config.z_loss", None, {"float": "0.0001"}, ChangeKind.FIELD_ADDED))
    config.z_loss: added, 0.0001
    """

    path: str
    old: JSON
    new: JSON
    kind: ChangeKind

    def __str__(self) -> str:
        if self.kind is ChangeKind.FIELD_ADDED:
            return f"{self.path}: added, {self._shown(self.new)}"
        if self.kind is ChangeKind.FIELD_REMOVED:
            return f"{self.path}: removed, was {self._shown(self.old)}"
        if holds_names(self.path):
            return f"{self.path}: {self._shown(self.old)} → {self._shown(self.new)}"
        return f"{self.path}: {' → '.join(show_both(self.old, self.new))}"

    def _shown(self, encoded: JSON) -> str:
        # Names and versions are text in the JSON, and no quoted text to people.
        return encoded if holds_names(self.path) and isinstance(encoded, str) else show(encoded)


def holds_names(path: str) -> bool:
    """Whether what is at ``path`` of a recipe is a name or a version, which people write without quotes."""
    return path in ("function", "artifact_type") or path.startswith("deps.")


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    """Every difference between two recipes' payloads; none exactly if they are equal.

    A dependency whose version changed is told once, and not again for each place in the config that mentions it.

    >>> [str(change) for change in compare({"deps": ["poems@2026.07.01"]}, {"deps": ["poems@2026.07.02"]})]
    ['deps.poems: 2026.07.01 → 2026.07.02']
    """
    old_deps, new_deps = _versions(old.get("deps")), _versions(new.get("deps"))
    moved = _moved(old_deps, new_deps)
    # What was adopted mentions no dependency: a source is plain text.
    followed = {name: part if name == "source" else _follow({name: part}, moved)[name] for name, part in old.items()}
    sections = [*_SECTIONS, *sorted((old.keys() | new.keys()) - {*_SECTIONS, "deps"})]
    changes = [change for section in sections for change in _section(section, followed, new)]
    changes.extend(_dependencies(old_deps, new_deps))
    if changes:
        return tuple(changes)
    # Not of our making, such as deps out of order: still told.
    return tuple(
        Change(name, old.get(name), new.get(name), ChangeKind.LITERAL)
        for name in sorted(old.keys() | new.keys())
        if canonical([old.get(name), name in old]) != canonical([new.get(name), name in new])
    )


def recipe_values(payload: Mapping[str, Any]) -> Iterator[tuple[str, JSON]]:
    """Each value of a recipe that is not taken apart further, by its path as ``compare`` names it.

    >>> dict(recipe_values({"config": {"dict": {"lr": {"float": "0.5"}}}, "deps": ["poems@dev"]}))
    {'config["lr"]': {'float': '0.5'}, 'deps.poems': 'dev'}
    """
    for section in [*_SECTIONS, *sorted(payload.keys() - {*_SECTIONS, "deps"})]:
        if section not in payload:
            continue
        if section in ("fields", "source") and isinstance(payload[section], dict):
            members = named_members(payload[section], ".").values()
            todo = [(section + suffix, member) for suffix, member in members]
        else:
            todo = [(section, payload[section])]
        todo.reverse()
        while todo:
            path, encoded = todo.pop()
            parts = take_apart(encoded)
            if parts is None or not parts.members:
                yield path, encoded
            else:
                todo += reversed([(path + suffix, member) for suffix, member in parts.members.values()])
    yield from ((f"deps.{name}", ", ".join(sorted(found))) for name, found in _versions(payload.get("deps")).items())


def _section(name: str, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> Iterator[Change]:
    if name == "fields":
        # The fields of a step's own class: a bare map of encodings.
        before = cast("dict[str, JSON]", old.get(name) or {})
        after = cast("dict[str, JSON]", new.get(name) or {})
        yield from _members(name, named_members(before, "."), named_members(after, "."))
    elif name == "source" and name in old and name in new:
        before = cast("dict[str, JSON]", old[name])
        after = cast("dict[str, JSON]", new[name])
        for change in _members(name, named_members(before, "."), named_members(after, ".")):
            replaced = change.kind in (ChangeKind.LITERAL, ChangeKind.TYPE)
            yield Change(change.path, change.old, change.new, ChangeKind.SOURCE) if replaced else change
    elif name in old and name in new:
        yield from _whole_section(name, old[name], new[name])
    elif name in new:
        yield Change(name, None, new[name], ChangeKind.FIELD_ADDED)
    elif name in old:
        yield Change(name, old[name], None, ChangeKind.FIELD_REMOVED)


def _whole_section(name: str, old: JSON, new: JSON) -> Iterator[Change]:
    kinds = {"function": ChangeKind.FUNCTION, "artifact_type": ChangeKind.TYPE}
    for change in _differences(name, old, new):
        kind = kinds.get(name, change.kind) if change.path == name else change.kind
        yield Change(change.path, change.old, change.new, kind)


def _differences(path: str, old: JSON, new: JSON) -> Iterator[Change]:
    if canonical(old) == canonical(new):
        return
    before, after = take_apart(old), take_apart(new)
    inner = list[Change]()
    if before is not None and after is not None and before.head == after.head:
        inner = list(_members(path, before.members, after.members))
    yield from inner or [Change(path, old, new, _kind(old, new))]


def _members(path: str, old: Members, new: Members) -> Iterator[Change]:
    for key, (suffix, before) in old.items():
        if key in new:
            yield from _differences(path + suffix, before, new[key][1])
        else:
            yield Change(path + suffix, before, None, ChangeKind.FIELD_REMOVED)
    for key, (suffix, after) in new.items():
        if key not in old:
            yield Change(path + suffix, None, after, ChangeKind.FIELD_ADDED)


def _kind(old: JSON, new: JSON) -> ChangeKind:
    if old is None or new is None or _type(old) == _type(new):
        return ChangeKind.LITERAL
    return ChangeKind.TYPE


def _type(encoded: JSON) -> str:
    if not isinstance(encoded, dict):
        return type(encoded).__name__
    for tag in ("object", "subclass", "enum"):
        if tag in encoded:
            return f"{tag} {encoded[tag]}"
    if any(tag in encoded for tag in _NODES_OF_TEXT):
        return "str"
    return " ".join(key for key in sorted(encoded) if key not in ("tzinfo", "fold", "maxlen"))


def _versions(deps: Any) -> dict[str, set[str]]:
    versions = dict[str, set[str]]()
    for dep in deps or ():
        name, _, version = str(dep).partition("@")
        versions.setdefault(name, set()).add(version)
    return versions


def _moved(old: Mapping[str, set[str]], new: Mapping[str, set[str]]) -> dict[str, str]:
    """Old id to new id of each dependency that changed from one version to one other."""
    moved = dict[str, str]()
    for name in old.keys() & new.keys():
        gone, come = old[name] - new[name], new[name] - old[name]
        if len(gone) == len(come) == 1:
            moved[f"{name}@{gone.pop()}"] = f"{name}@{come.pop()}"
    return moved


def _dependencies(old: Mapping[str, set[str]], new: Mapping[str, set[str]]) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        before, after = (", ".join(sorted(deps.get(name, ()))) for deps in (old, new))
        path = f"deps.{name}"
        if name not in old:
            yield Change(path, None, after, ChangeKind.FIELD_ADDED)
        elif name not in new:
            yield Change(path, before, None, ChangeKind.FIELD_REMOVED)
        elif before != after:
            yield Change(path, before, after, ChangeKind.DEPENDENCY_VERSION)


def _follow(node: Mapping[str, JSON], moved: Mapping[str, str]) -> dict[str, JSON]:
    """``node`` with the mentions of moved dependencies moved along."""
    if not moved:
        return dict(node)
    if set(node) == {"handle"}:
        handle = str(node["handle"])
        return {"handle": moved.get(handle, handle)}
    if set(node) == {"placeholder"}:
        return {"placeholder": _followed_token(str(node["placeholder"]), moved)}
    return {key: _follow_part(key, part, moved) for key, part in node.items()}


def _follow_part(key: str, part: JSON, moved: Mapping[str, str]) -> JSON:
    if isinstance(part, list):
        return [_follow_part("", item, moved) for item in part]
    if not isinstance(part, dict):
        return part
    if key in _MAPS:
        # Its keys are the user's, and may be called like a tag.
        return {name: _follow_part("", value, moved) for name, value in part.items()}
    return {**_follow(part, moved)}


def _followed_token(token: str, moved: Mapping[str, str]) -> str:
    for old, new in moved.items():
        # The id may be followed by attributes, which never begin with a digit as the rest of a version does.
        if match := re.fullmatch(rf"(artifact|resolved):{re.escape(old)}((?:\.[^\W\d]\w*)*)", token):
            return f"{match[1]}:{new}{match[2]}"
    return token
