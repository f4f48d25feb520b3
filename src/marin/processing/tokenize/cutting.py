"""Where a long text may be cut so that the ids of its pieces, one after the other, are the ids of the whole.

A byte-level vocabulary first splits a text by a pattern, and merges only inside of what that gives. Each of the
patterns below begins a new word at a space between two ASCII letters, and looks no further than the next character. So
a cut in front of such a space changes nothing, provided that no normal form and no added token reaches across it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

CUT_CHARACTERS = 1 << 18
"""Texts up to this length are encoded whole."""

_PLACE = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")
_SEARCHED = 1 << 12
"""Characters in which a place is looked for at a time."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_KNOWN_PATTERNS = frozenset(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",  # cl100k, Llama 3
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",  # Qwen 2 and 3
        "|".join(  # o200k
            (
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?",
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    }
)


class _Model(msgspec.Struct):
    type: str | None = None
    dropout: float | None = None


class Outline(msgspec.Struct):
    """A ``tokenizer.json`` without its vocabulary, which is most of it."""

    truncation: Any = None
    padding: Any = None
    added_tokens: list[dict[str, Any]] | None = None
    normalizer: Any = None
    pre_tokenizer: Any = None
    model: _Model = msgspec.field(default_factory=_Model)


def read_outline(tokenizer: bytes) -> Outline:
    """The outline of a file that ``tokenizers`` can read."""
    return msgspec.json.decode(tokenizer, type=Outline)


def may_be_cut(tokenizer: bytes) -> bool:
    """Whether ``cut`` is exact for this ``tokenizer.json``."""
    outline = read_outline(tokenizer)
    reaches_across = any(
        re.search(r"\s", token["content"]) or token.get("lstrip") or token.get("rstrip")
        for token in outline.added_tokens or ()
    )
    is_bpe = outline.model.type == "BPE"
    return is_bpe and not reaches_across and _keeps(outline.normalizer) and _splits(outline.pre_tokenizer)


def cut(text: str) -> Iterator[str]:
    """``text`` in pieces of about ``CUT_CHARACTERS``; longer ones where there is no place to cut.

    >>> list(cut("Roses are red"))
    ['Roses are red']
    """
    start, end = 0, len(text)
    while end - start > CUT_CHARACTERS:
        place = _next_place(text, start + CUT_CHARACTERS)
        if place is None:
            break
        yield text[start:place]
        start = place
    yield text[start:]


def _next_place(text: str, start: int) -> int | None:
    # The pattern looks one character back and one ahead: windows overlap by these.
    for begin in range(start, len(text), _SEARCHED):
        if found := _PLACE.search(text, begin, min(begin + _SEARCHED + 2, len(text))):
            return found.start()
    return None


def _keeps(normalizer: dict[str, Any] | None) -> bool:
    """Whether the normal form of a text is that of its pieces: none, or composition, which no space takes part in."""
    if normalizer is None or normalizer["type"] == "NFC":
        return True
    return normalizer["type"] == "Sequence" and all(_keeps(each) for each in normalizer["normalizers"])


def _splits(pre_tokenizer: dict[str, Any] | None) -> bool:
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(use_regex)}:
            return use_regex
        case {"type": "ByteLevel", "add_prefix_space": False}:
            return True  # files of before the entry existed
        case {"type": "Sequence", "pretokenizers": [first, *others]}:
            rest = [{**each, "use_regex": True} if each.get("type") == "ByteLevel" else each for each in others]
            return _splits(first) and all(_splits(each) for each in rest)
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False}:
            return pattern in _KNOWN_PATTERNS
        case _:
            return False
