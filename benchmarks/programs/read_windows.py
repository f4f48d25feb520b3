"""Shuffled windows of 2,048 tokens in batches of 64: what is common to the programs that read them.

A pass is one over all windows, each once, in another order each time. The first pass is not timed: it fills caches and
maps files. Passes go on until a second is over.
"""

import json
import time

import numpy as np

LENGTH, BATCH = 2_048, 64
LEAST_SECONDS = 1.0


def orders(tokens, seed=0):
    """For each pass the windows in a random order, as a batch per row; what doesn't fill a batch is left out."""
    random, windows = np.random.default_rng(seed), tokens // LENGTH
    while True:
        order = random.permutation(windows)
        yield order[: windows // BATCH * BATCH].reshape(-1, BATCH)


def timed(passes):
    """Take passes, each an iterable of batches, until enough time is over; say how many windows that were."""
    windows, checksum = 0, 0
    for batch in next(passes):
        checksum ^= int(batch[0][0])
    begun, cpu_begun = time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < LEAST_SECONDS:
        for batch in next(passes):
            assert len(batch) == BATCH, len(batch)
            assert len(batch[0]) == LENGTH, len(batch[0])
            windows += BATCH
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
    print(f"measured: {json.dumps({'read': seconds, 'read_cpu': cpu_seconds, 'windows': windows})}")
