"""Put a very large text together from parts."""

from __future__ import annotations


class GrowingText:
    """A text that grows where it is: unlike with ``"".join``, the parts and the whole are not in memory together."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, part: str) -> None:
        # CPython extends a string in place if one local name is all that refers to it.
        text, self._text = self._text, ""
        text += part
        self._text = text

    def take(self) -> str:
        """The text, which is empty from now on."""
        text, self._text = self._text, ""
        return text
