"""The fast engine alone, on text that is in memory: ``tokenize_engine.py FOLDER TOKENIZER WORKERS``.

Nothing is written. ``engine`` is the time from the moment when all workers have their text and the engine until the
last of them has encoded its share; ``engine_and_load`` begins before they load the engine.
"""

import glob
import json
import multiprocessing
import os
import sys
import time

import fastokens
import numpy as np

BATCH_BYTES = 1_000_000

ONE_THREAD = {"RAYON_NUM_THREADS": "1", "FASTOKENS_BPE_THREADS": "1"}
"""Its own threads are of no use where there is a process for each core: they spin while they wait for work."""


def batches(texts):
    """What the engine is handed at once: about so much text."""
    found, size = [], 0
    for text in texts:
        found.append(text)
        size += len(text.encode())
        if size >= BATCH_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found


def work(texts, location, barrier, results):
    given = list(batches(texts))
    barrier.wait()
    begun = time.perf_counter()
    tokenizer = fastokens.Tokenizer.from_file(location)
    barrier.wait()
    encoding, cpu_begun, tokens = time.perf_counter(), time.process_time(), 0
    for batch in given:
        ids, _ = tokenizer.encode_batch_flat(batch, add_special_tokens=False, split_special_tokens=True)
        tokens += len(np.frombuffer(ids, np.uint32))
    results.put((begun, encoding, time.perf_counter(), time.process_time() - cpu_begun, tokens))


def shares(folder, workers):
    """The texts dealt out to the workers, each with as many bytes."""
    found, sizes = [[] for _ in range(workers)], [0] * workers
    for path in sorted(glob.glob(f"{folder}/*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line)["text"]
                least = sizes.index(min(sizes))
                found[least].append(text)
                sizes[least] += len(text.encode())
    return found, sum(sizes)


if __name__ == "__main__":
    folder, location, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Its own threads make it slower: each worker has one, as in Marin.
    os.environ |= ONE_THREAD
    texts, size = shares(folder, workers)
    forking = multiprocessing.get_context("fork")
    barrier, results = forking.Barrier(workers), forking.Queue()
    started = [forking.Process(target=work, args=(share, location, barrier, results)) for share in texts]
    for process in started:
        process.start()
    found = [results.get() for _ in started]
    for process in started:
        process.join()
    loading, encoding, ended, cpu_seconds, tokens = zip(*found, strict=True)
    said = {
        "documents": sum(map(len, texts)),
        "tokens": sum(tokens),
        "added": 0,
        "text_bytes": size,
        "engine": max(ended) - min(encoding),
        "engine_cpu": sum(cpu_seconds),
        "engine_and_load": max(ended) - min(loading),
    }
    print(f"measured: {json.dumps(said)}")
