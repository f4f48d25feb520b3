"""The documents of the golden caches. Their ids are the bytes of UTF-8, then 256."""

from __future__ import annotations

TEXTS = {
    "train": [
        "Roses are red, violets are blue.\n",
        "Veilchen sind blau, 東京 ist groß.\r\n",
        "x",
        "A sentence. Another one of the same document.",
        "The last one 👩‍🚀",
    ],
    "validation": ["Held out.", "Also held out."],
}
EMPTY_BEFORE = 2
"""In Megatron's files there is a document without a token before this one of ``train``."""

SENTENCES_OF = 3
"""In Megatron's files this document of ``train`` is two sequences."""


def ids(text: str) -> list[int]:
    return [*text.encode(), 256]
