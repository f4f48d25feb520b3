"""Whether a fast engine may be used: only if it gives the ids of the reference, on a probe set and on the data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from marin.processing.tokenize.encoder import PROBE
from marin.processing.tokenize.engines import Engine, FlatIds

SAMPLED_DOCUMENTS, SAMPLED_CHARACTERS = 1_000, 400_000
"""So many of the data's first documents are compared, up to so many characters."""

_WORDS = (
    "a I'll don't DON'T we've they're x's 'tis rock'n'roll",
    "0 1 12 123 1234 12345 3.14159 1,000,000 0x1F 10_000 ½ ² ٣ 十二",
    "naïve café Straße ﬁancé Å Å ñ ñ İstanbul ΑΣ ς ǅ",
    "東京都 日本語です。 ひらがな カタカナ 한국어 中文，标点。",
    "Привет мир Здравствуйте Ελληνικά עברית العربية हिन्दी ภาษาไทย ქართული",
    "👩‍🚀 👍🏽 🇩🇪 🏳️‍🌈 ❤️ ☺ e\u0301 a\u0300\u0327",
    "def f(x):\n    return x[0] >= 10_000.5  # naïve\n",
    "if (a && b || !c) { return *p++ ^ ~q; } // comment\r\n",
    '<p class="x">&amp; &#39; </p> http://a.b/c?d=e&f#g user@example.org',
    "ALLCAPS camelCase snake_case kebab-case X9y8 __init__ a.b.c()",
)
_SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n",
    "\n ",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u2028",
    "\x0b",
    "\x85",
)


def probe_texts() -> list[str]:
    """Texts on which engines were seen to differ: spaces, contractions, digits, scripts, normal forms, long runs."""
    texts = ["", PROBE, *_WORDS, *_SPACES]
    texts += [f"a{space}b" for space in _SPACES] + [f"{space}'s{space}1{space}" for space in _SPACES]
    texts += [f"{space}{word}{space}" for space in (" ", "\n", "\r\n\r\n", "\t ") for word in _WORDS]
    texts += [character * count for character in "a1 \n=é東👍" for count in (2, 3, 4, 7, 64, 1000)]
    texts += ["".join(map(chr, range(start, start + 256))) for start in range(0, 0x3000, 256)]
    texts += [" ".join(map(chr, range(start, start + 128))) for start in (*range(0, 0x800, 128), 0x1F300, 0x1F600)]
    texts += ["\x00", "\ufeffa", "\ufffd", "\U0010ffff", "a\x00b", "<|endoftext|>", "a<|eot_id|>b", "</s><s>[INST]"]
    return texts


def first_characters(texts: Sequence[str]) -> list[str]:
    """As many of ``texts`` as are compared, the last one cut short."""
    found, left = list[str](), SAMPLED_CHARACTERS
    for text in texts:
        if left <= 0:
            break
        found.append(text[:left])
        left -= len(text)
    return found


def probe_set(sample: Sequence[str], special: Sequence[str]) -> list[str]:
    """What engines are compared on: fixed texts, the tokenizer's ``special`` strings within text, and ``sample``."""
    return [*probe_texts(), *(f"a{each}b {each} " for each in special), *sample]


def encoded_probe(engine: Engine, sample: Sequence[str], special: Sequence[str]) -> FlatIds:
    """The ids of the probe set."""
    return engine.encode(probe_set(sample, special))


def difference(reference: FlatIds, found: FlatIds, texts: Sequence[str]) -> str | None:
    """How ``found`` differs from ``reference``, in one line; ``None`` if it does not. Both encode ``texts``."""
    if np.array_equal(reference[1], found[1]) and np.array_equal(reference[0], found[0]):
        return None
    for text, ours, theirs in zip(texts, _split(reference), _split(found), strict=False):
        if not np.array_equal(ours, theirs):
            return f"the fast one gives other ids for {_shown(text)}"
    return "the fast one gives another number of documents"


def _split(flat: FlatIds) -> list[Any]:
    return np.split(flat[0], np.cumsum(flat[1])[:-1])


def _shown(text: str) -> str:
    shown = ascii(text[:40])
    return shown if len(text) <= 40 else f"{shown} … ({len(text):,} characters)"


def tell(reason: str) -> None:
    """Say that the reference runs, and why: one line of the step's log."""
    print(f"the reference tokenizer is used, which is slower: {reason}", file=sys.stderr, flush=True)
