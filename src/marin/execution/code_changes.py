"""The code that a build was made with, as it is recorded, and what has changed in it since. Pure.

See ``code`` for where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

CODE_SCHEME = 1
"""Number of the rules by which code is digested. Code recorded by other rules can't be compared."""


class RecordedModule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a step reaches in one module.

    ``file``: from the folder that the module is imported from, with ``/``. ``definitions``: by name, what it is
    (``function``, ``class``, ``constant``), a colon, and a digest of its syntax.
    """

    file: str
    definitions: dict[str, str]


class RecordedCode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The code that a step runs: what it reaches by name, as far as its source can be read.

    ``modules``: the author's own code. ``distributions``: installed packages that it uses, with their versions
    (``""``: not known). ``unknown``: modules or functions without readable source, each with the reason.
    """

    scheme: int  # no default: what is left out would change its meaning with the next scheme
    modules: dict[str, RecordedModule] = {}
    distributions: dict[str, str] = {}
    unknown: dict[str, str] = {}


class CodeChangeKind(StrEnum):
    """What happened to a definition."""

    CHANGED = "changed"
    ADDED = "added"
    """The step reaches it now, and did not when it was built."""
    REMOVED = "removed"
    """The step does not reach it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeChange:
    """One function, class or constant that differs from what a build was made with.

    >>> print(CodeChange(module="pipeline.helpers", name="clean", what="function", file="pipeline/helpers.py"))
    helpers.clean (pipeline/helpers.py)
    """

    module: str
    name: str
    what: str
    file: str
    kind: CodeChangeKind = CodeChangeKind.CHANGED

    def __str__(self) -> str:
        what = "" if self.what == "function" else f"{self.what} "
        kind = "" if self.kind is CodeChangeKind.CHANGED else f" {self.kind.value}"
        return f"{what}{self.module.rpartition('.')[2]}.{self.name}{kind} ({self.file})"


def code_changes(old: RecordedCode, new: RecordedCode) -> tuple[CodeChange, ...]:
    """Each definition that differs, by module and name. Installed distributions are not looked at.

    What is behind a part that can't be read, then or now, may still be there: it is not called added or removed.
    """
    if old.scheme != new.scheme or old.modules == new.modules:
        return ()
    return tuple(_changes(old, new))


def distribution_changes(old: RecordedCode, new: RecordedCode) -> dict[str, tuple[str | None, str | None]]:
    """Installed distributions whose version differs: ``(then, now)`` by name; ``None``: not used."""
    names = sorted(old.distributions.keys() | new.distributions.keys())
    both = {name: (old.distributions.get(name), new.distributions.get(name)) for name in names}
    return {name: (then, now) for name, (then, now) in both.items() if then != now}


def _changes(old: RecordedCode, new: RecordedCode) -> Iterator[CodeChange]:
    for module in sorted(old.modules.keys() | new.modules.keys()):
        before, after = old.modules.get(module), new.modules.get(module)
        then = before.definitions if before is not None else {}
        now = after.definitions if after is not None else {}
        file = after.file if after is not None else before.file if before is not None else ""
        for name in sorted(then.keys() | now.keys()):
            kind = _kind(then.get(name), now.get(name))
            hidden = {CodeChangeKind.REMOVED: new.unknown, CodeChangeKind.ADDED: old.unknown}
            if kind is not None and not hidden.get(kind):
                what = now.get(name, then.get(name, "")).partition(":")[0]
                yield CodeChange(module=module, name=name, what=what, file=file, kind=kind)


def _kind(then: str | None, now: str | None) -> CodeChangeKind | None:
    if then == now:
        return None
    if then is None:
        return CodeChangeKind.ADDED
    return CodeChangeKind.REMOVED if now is None else CodeChangeKind.CHANGED
