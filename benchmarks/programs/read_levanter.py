"""Shuffled windows out of a Levanter cache, by Levanter's own reader: ``read_levanter.py STORE``."""

import asyncio
import sys

import numpy as np
from levanter.data.text.datasets import TokenSeqDataset
from levanter.store.cache import TreeCache
from read_windows import LENGTH, orders, timed

if __name__ == "__main__":
    (store,) = sys.argv[1:]
    exemplar = {"input_ids": np.zeros(0, dtype=np.int32)}
    cache = TreeCache.load(f"{store}/bench/corpus/2026.07.01/train", exemplar)
    windows = TokenSeqDataset(cache, LENGTH)
    loop = asyncio.new_event_loop()

    def one_pass(order):
        for starts in order:
            # One after the other: to wait for several batches at once takes longer for each.
            batch = loop.run_until_complete(windows.get_batch(starts.tolist()))
            yield [each["input_ids"] for each in batch]

    tokens = loop.run_until_complete(windows.async_len()) * LENGTH
    timed(one_pass(order) for order in orders(tokens))
