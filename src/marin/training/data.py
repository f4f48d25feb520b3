"""The order of a validation: every token once. That of the training is in ``marin.processing.mixture``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marin.processing.mixture.windows import Batch, segments_of
from marin.processing.tokenize.stream import TokenStream


def validation_batches(
    stream: TokenStream, *, seq_len: int, batch_size: int, segments: bool = False
) -> Iterator[Batch]:
    """Every token of ``stream`` but the first as a target, once, in order; all batches have one shape.

    ``segments``: they have ``segment_ids`` and ``positions``. Not learned, so not counted, is what is missing in the
    last window and the last batch, and what the stream masks.
    """
    targets = stream.num_tokens - 1
    windows = -(-targets // seq_len)
    for first in range(0, windows, batch_size):
        tokens = np.zeros((batch_size, seq_len + 1), np.int32)
        loss_mask = np.zeros((batch_size, seq_len), np.bool_)
        begins = np.zeros((batch_size, seq_len + 1), np.bool_)
        for row, window in enumerate(range(first, min(first + batch_size, windows))):
            start = window * seq_len
            count = min(seq_len, targets - start)
            tokens[row, : count + 1] = stream.tokens(start, count + 1)
            learned = stream.loss_mask(start + 1, count)
            loss_mask[row, :count] = True if learned is None else learned
            if segments:
                begins[row, stream.document_ends(start, count) - start] = True
        if not segments:
            yield Batch(tokens=tokens, loss_mask=loss_mask)
            continue
        segment_ids, positions = segments_of(begins[:, :-1])
        yield Batch(tokens=tokens, loss_mask=loss_mask, segment_ids=segment_ids, positions=positions)
