"""Which step may start next. Pure bookkeeping, linear in the graph, any depth."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Schedule(Generic[K]):
    """Hands out each key once all that it depends on has finished.

    >>> schedule = Schedule({"train": ["tokens"], "tokens": []})
    >>> schedule.pop_ready()
    'tokens'
    >>> schedule.pop_ready() is None
    True
    >>> schedule.finish("tokens")
    >>> schedule.pop_ready()
    'train'
    """

    def __init__(self, deps: Mapping[K, Iterable[K]]) -> None:
        """``deps``: what each key waits for; keys that are not in ``deps`` count as finished."""
        self._waits = {key: len({dep for dep in needs if dep in deps}) for key, needs in deps.items()}
        self._readers: dict[K, list[K]] = {key: [] for key in deps}
        for key, needs in deps.items():
            for dep in dict.fromkeys(needs):
                if dep in deps:
                    self._readers[dep].append(key)
        self._ready = deque(key for key, count in self._waits.items() if count == 0)
        self._running = set[K]()
        self._open = len(self._waits)
        self._blocked = set[K]()

    @property
    def ready_count(self) -> int:
        """How many keys may start now."""
        return len(self._ready)

    @property
    def done(self) -> bool:
        """Whether every key has finished, failed or is blocked."""
        return self._open == 0

    def pop_ready(self) -> K | None:
        """The next key that may start; it counts as running from now on. None: nothing may start yet."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._running.add(key)
        return key

    def put_back(self, keys: Sequence[K]) -> None:
        """Undo ``pop_ready`` of ``keys``: they are the next again, in this order."""
        self._running.difference_update(keys)
        self._ready.extendleft(reversed(keys))

    def finish(self, key: K) -> None:
        """``key`` ended well."""
        self._end(key)
        for reader in self._readers[key]:
            self._waits[reader] -= 1
            if self._waits[reader] == 0 and reader not in self._blocked:
                self._ready.append(reader)

    def fail(self, key: K) -> list[K]:
        """``key`` failed. Returns everything that can't be made because of it and was not blocked before."""
        self._end(key)
        blocked: list[K] = []
        stack = [key]
        while stack:
            for reader in self._readers[stack.pop()]:
                if reader not in self._blocked:
                    self._blocked.add(reader)
                    blocked.append(reader)
                    stack.append(reader)
        self._open -= len(blocked)
        return blocked

    def abandon_waiting(self) -> list[K]:
        """Start nothing more. Returns what will not be made: neither ended nor running."""
        left = [
            key
            for key in self._waits
            if self._waits[key] >= 0 and key not in self._running and key not in self._blocked
        ]
        self._blocked.update(left)
        self._ready.clear()
        self._open -= len(left)
        return left

    def _end(self, key: K) -> None:
        self._running.remove(key)
        self._open -= 1
        self._waits[key] = -1
