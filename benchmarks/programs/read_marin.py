"""Shuffled windows out of a token cache of Marin: ``read_marin.py FOLDER TOKENIZER STORE``."""

import sys

from corpus_cache import handle
from read_windows import LENGTH, orders, timed

from marin.execution import RunOptions, run
from marin.processing.tokenize.cache import TokenCache

if __name__ == "__main__":
    folder, tokenizer, store = sys.argv[1:]
    (made,) = run(handle(folder, tokenizer), options=RunOptions(prefix=store))
    cache = TokenCache.open(made.path)
    timed((cache.windows(starts * LENGTH, LENGTH) for starts in order) for order in orders(cache.num_tokens))
