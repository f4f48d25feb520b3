"""What is said to a word on the command line that nobody knows."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """As ``parse_args``, but what is not known is answered with what may have been meant."""
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(unrecognized(parser, unknown))
    return arguments


def unrecognized(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """The error for ``words`` that ``parser`` has left over.

    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--version")
    >>> unrecognized(parser, ["--vresion=dev", "dev"])
    "unrecognized arguments: --vresion=dev dev (did you mean '--version'?)"
    """
    options = [option for action in parser._actions for option in action.option_strings]  # pyright: ignore[reportPrivateUsage]  # argparse has no other way to ask
    near = [near_word(word.partition("=")[0], options) for word in words if word.startswith("-")]
    return f"unrecognized arguments: {' '.join(words)}{next(filter(None, near), '')}"


def near_word(word: str, known: Iterable[str]) -> str:
    """The question whether one of ``known`` was meant, to be put behind a message; empty if none is like ``word``."""
    near = difflib.get_close_matches(word, sorted(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
