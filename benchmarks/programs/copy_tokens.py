"""The tokens of a cache of Marin as one flat file, ``tokens.bin``: ``copy_tokens.py FOLDER TOKENIZER STORE``."""

import sys

from corpus_cache import handle

from marin.execution import RunOptions, run
from marin.processing.tokenize.cache import TokenCache

if __name__ == "__main__":
    folder, tokenizer, store = sys.argv[1:]
    (made,) = run(handle(folder, tokenizer), options=RunOptions(prefix=store))
    cache = TokenCache.open(made.path)
    assert cache.dtype == "uint32"
    with open(f"{store}/tokens.bin", "wb") as flat:
        for start in range(0, cache.num_tokens, 1 << 20):
            flat.write(cache.tokens(start, min(1 << 20, cache.num_tokens - start)).tobytes())
