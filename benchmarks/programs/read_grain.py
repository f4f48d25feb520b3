"""Shuffled windows out of one flat file by grain's MapDataset: ``read_grain.py STORE``."""

import itertools
import sys

import grain
import numpy as np
from read_windows import BATCH, LENGTH, timed


class Windows:
    def __init__(self, path):
        self._tokens = np.asarray(np.memmap(path, np.uint32, mode="r"))  # slices of a plain array take half the time

    def __len__(self):
        return len(self._tokens) // LENGTH

    def __getitem__(self, index):
        return self._tokens[index * LENGTH : (index + 1) * LENGTH]


if __name__ == "__main__":
    (store,) = sys.argv[1:]
    source = grain.MapDataset.source(Windows(f"{store}/tokens.bin"))

    def one_pass(seed):
        batches = source.shuffle(seed=seed).batch(BATCH, drop_remainder=True)
        return (batches[index] for index in range(len(batches)))

    timed(one_pass(seed) for seed in itertools.count())
