"""How many bytes of text each id stands for, so that the text of a cache can be measured without decoding it."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from marin.processing.tokenize.encoder import Encoder

_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def bytes_of_ids(encoder: Encoder) -> npt.NDArray[np.int64]:
    """UTF-8 bytes of text per id; none for the token that ends a document.

    Exact for byte-level vocabularies and plain bytes. Where a decoder joins pieces in other ways, what it makes of a
    piece behind another one counts, which is exact but for the beginnings of documents.
    """
    identity = encoder.identity
    if encoder.file is None:
        counts = np.ones(identity.vocab_size, np.int64)
    else:
        counts = _of_vocabulary(encoder.file, identity.vocab_size)
    counts[identity.eos_id] = 0
    return counts


def _of_vocabulary(file: bytes, vocab_size: int) -> npt.NDArray[np.int64]:
    tokenizer = tokenizers.Tokenizer.from_str(file.decode())
    added = set(tokenizer.get_added_tokens_decoder())
    byte_level = "ByteLevel" in _types(json.loads(file).get("decoder"))
    counts = np.zeros(vocab_size, np.int64)
    anchor = tokenizer.token_to_id("a")
    before = 0 if anchor is None else _decoded(tokenizer, [anchor])
    for text, id_ in tokenizer.get_vocab(with_added_tokens=True).items():
        if id_ in added:
            counts[id_] = len(text.encode())
        elif byte_level:
            counts[id_] = len(text)  # each character stands for a byte
        elif _BYTE_PIECE.fullmatch(text):
            counts[id_] = 1
        elif anchor is not None:
            counts[id_] = max(0, _decoded(tokenizer, [anchor, id_]) - before)
        else:
            counts[id_] = _decoded(tokenizer, [id_])
    return counts


def _decoded(tokenizer: tokenizers.Tokenizer, ids: list[int]) -> int:
    return len(tokenizer.decode(ids, skip_special_tokens=False).encode())


def _types(decoder: Any) -> set[str]:
    """The kinds of decoder in a ``tokenizer.json``, those inside of a sequence too."""
    if not isinstance(decoder, dict):
        return set()
    inner = [kind for part in decoder.get("decoders", ()) for kind in _types(part)]
    return {str(decoder.get("type")), *inner}
