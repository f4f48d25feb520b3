"""Several faults, one error: who must mend ten data sets should not have to start ten times."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from marin.errors import DataError, MarinError


class Faults:
    """What is wrong with several things, collected to be told at once."""

    def __init__(self) -> None:
        self._found = list[MarinError]()

    def add(self, fault: MarinError) -> None:
        """Note ``fault``; the same text is told once."""
        if str(fault) not in map(str, self._found):
            self._found.append(fault)

    @contextmanager
    def collected(self) -> Generator[None]:
        """A block whose ``MarinError`` is noted, not raised: what comes after the block goes on."""
        try:
            yield
        except MarinError as fault:
            self.add(fault)

    def raise_all(self, what: str) -> None:
        """Raise what was found: one fault as it is, several as one error that lists them; none: do nothing.

        The error is of the class that all of them have, else a ``DataError``.
        """
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            listed = "".join(f"\n  {fault}" for fault in self._found)
            kinds = {type(fault) for fault in self._found}
            kind = kinds.pop() if len(kinds) == 1 else DataError
            raise kind(f"{what}: {len(self._found)} faults{listed}") from self._found[0]
