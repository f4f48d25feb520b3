"""JSON lines to a cache of upstream Marin: ``MARIN_PREFIX=STORE tokenize_upstream.py FOLDER TOKENIZER_FOLDER``."""

import json
import sys

from marin.execution.lazy import run
from marin.experiment.data import tokenized

VERSION = "2026.07.01"

if __name__ == "__main__":
    folder, tokenizer = sys.argv[1:]
    (cache,) = run(tokenized("bench/corpus", paths=[f"{folder}/*.jsonl"], tokenizer=tokenizer, version=VERSION))
    with open(f"{cache.cache_dir}/train/.stats.json", encoding="utf-8") as stats:
        counted = json.load(stats)
    documents = counted["total_elements"]
    # Before each document it puts a begin-of-text id, and behind it the id of a blank and an end-of-text id.
    said = {"documents": documents, "tokens": counted["total_tokens"], "added": 3 * documents}
    print(f"measured: {json.dumps(said)}")
