"""JSON lines to a committed cache in Marin: ``tokenize_marin.py FOLDER TOKENIZER STORE [run|plan] [CORES]``.

``encoding`` is what the step's log tells: from the first part that is begun until all are written and durable.
"""

import glob
import json
import os
import re
import sys
import time

from corpus_cache import handle

from marin.execution import RunOptions, plan, run


def encoding_seconds(store):
    [log] = glob.glob(f"{store}/**/.logs/*.log", recursive=True, include_hidden=True)
    with open(log, encoding="utf-8") as lines:
        [told] = re.findall(r"MB of text in ([0-9.]+) s by", lines.read())
    return float(told)


if __name__ == "__main__":
    folder, tokenizer, store, action = sys.argv[1:5]
    if len(sys.argv) > 5:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[5])])
    corpus, options = handle(folder, tokenizer), RunOptions(prefix=store)
    begun, cpu_begun = time.perf_counter(), time.process_time()
    if action == "plan":
        planned = plan(corpus, options=options)
        assert not planned.to_make, "the store was to have it"
        said = {}
    else:
        (cache,) = run(corpus, options=options)
        train = cache.splits["train"]
        said = {
            "documents": train.documents,
            "tokens": train.tokens,
            "added": train.documents,  # one end-of-text id behind each document
            "text_bytes": train.text_bytes,
            "encoding": encoding_seconds(store),
        }
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
    print(f"measured: {json.dumps(said | {action: seconds, f'{action}_cpu': cpu_seconds})}")
