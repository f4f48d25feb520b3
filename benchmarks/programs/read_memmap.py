"""Shuffled windows out of one flat file by numpy: ``read_memmap.py STORE slices|index``."""

import sys

import numpy as np
from read_windows import BATCH, LENGTH, orders, timed


def by_slices(tokens, order):
    for starts in order:
        batch = np.empty((BATCH, LENGTH), tokens.dtype)
        for row, start in enumerate((starts * LENGTH).tolist()):
            batch[row] = tokens[start : start + LENGTH]
        yield batch


def by_index(tokens, order):
    windows = tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH)
    for starts in order:
        yield windows[starts]


if __name__ == "__main__":
    store, way = sys.argv[1:]
    tokens = np.asarray(np.memmap(f"{store}/tokens.bin", np.uint32, mode="r"))
    read = {"slices": by_slices, "index": by_index}[way]
    timed(read(tokens, order) for order in orders(len(tokens)))
