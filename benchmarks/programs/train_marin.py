"""A training in Marin, from token cache to checkpoint: ``train_marin.py CASE IDS STORE prepare|train|again``.

``train`` compiles anew, ``again`` takes what was compiled in the same store before.
"""

import json
import os
import shutil
import tempfile
import time

from train_clock import ClockConfig, arguments, process_start, said

from marin.execution import ArtifactStep, RunOptions, run
from marin.experiment.data import TokenizedCache, train_lm
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import AdamConfig

VERSION = "2026.07.01"


def tokens(ids, vocab_size):
    """The cache: ids of no tokenizer, so that its identity is made up."""
    identity = {"kind": "file", "location": "made up", "sha256": "", "probe_sha256": ""}
    ends = {"bos_id": None, "eos_id": None, "eos_token": None}
    config = {"tokenizer": {**identity, **ends, "vocab_size": vocab_size}}
    return ArtifactStep.adopt(name="bench/ids", version=VERSION, kind=TokenizedCache, source=ids, config=config)


def training(case, ids, clock):
    sizes = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads")
    every = case["save_every"]
    return train_lm(
        name=f"checkpoints/bench-{os.getpid()}",
        version=VERSION,
        model=LlamaConfig(**{size: case[size] for size in sizes}, max_seq_len=case["seq_len"]),
        datasets=tokens(ids, case["vocab_size"]),
        optimizer=AdamConfig(lr=1e-3, weight_decay=0.1, clip_norm=1.0),
        batch_size=case["batch_size"],
        seq_len=case["seq_len"],
        num_train_steps=case["steps"],
        precision=case["precision"],
        checkpoints=CheckpointPolicy(every=every, keep_permanent=1) if every else None,
        trackers=[ClockConfig(path=clock)],
    )


if __name__ == "__main__":
    case, ids, store, action = arguments()
    # The folder of the user's caches, where compiled programs are kept.
    os.environ["XDG_CACHE_HOME"] = f"{store}/caches" if action == "again" else tempfile.mkdtemp(dir=store)
    options = RunOptions(prefix=f"{store}/artifacts")
    if action == "prepare":
        run(tokens(ids, case["vocab_size"]), options=options)
    else:
        clock = f"{store}/clock-{os.getpid()}.json"
        (made,) = run(training(case, ids, clock), options=options)
        with open(clock, encoding="utf-8") as file:
            stamps = json.load(file)
        print(f"measured: {json.dumps(said(process_start(), stamps, case, time.process_time()))}")
        shutil.rmtree(made.path)
