"""What ``marin why`` has found out about one artifact."""

from __future__ import annotations

from dataclasses import dataclass

from marin.cli.recorded_command import Comparison
from marin.execution.ancestry import Ancestor
from marin.execution.catalog import Entry
from marin.execution.explain import Explanation
from marin.execution.identity import ArtifactId
from marin.execution.record import Build


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who has the lease. ``life``: ``alive``, ``ended`` or ``unknown``, which is all that another machine can tell."""

    name: str
    since: str
    life: str
    renewals: int

    def __str__(self) -> str:
        life = {"alive": "alive", "ended": "which has ended", "unknown": "whether it lives can't be told from here"}
        return f"{self.name}, since {self.since}, {life[self.life]}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is known of one artifact. ``explanation``: only with a script. ``comparison``: only without one."""

    id: ArtifactId
    entry: Entry | None
    data: str | None
    log: str | None
    holder: Holder | None
    ancestors: tuple[Ancestor, ...]
    explanation: Explanation | None = None
    comparison: Comparison | None = None

    @property
    def build(self) -> Build | None:
        return None if self.entry is None else self.entry.build
