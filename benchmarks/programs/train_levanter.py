"""A training in Levanter, by its own entry point: ``train_levanter.py CASE IDS STORE prepare|train|keeping``.

``train`` has Levanter's defaults, which compute the inner values of layers twice; ``keeping`` keeps them.
"""

import json
import os
import shutil
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import jmp
import numpy as np
from levanter.checkpoint import CheckpointerConfig
from levanter.data.text.datasets import DatasetComponent, LmDataConfig, UrlDatasetSourceConfig
from levanter.data.text.formats import PrebuiltLmDatasetFormat
from levanter.main import train_lm
from levanter.models.llama import LlamaConfig
from levanter.optim.config import AdamConfig
from levanter.tracker.json_logger import JsonLoggerConfig
from levanter.tracker.tracker import Tracker, TrackerConfig
from levanter.trainer import TrainerConfig
from tokenizers import Tokenizer, models
from train_clock import Clock, arguments
from transformers import PreTrainedTokenizerFast

POLICIES = {"float32": "f32", "bfloat16": "p=f32,c=bf16"}
CLOCK = Clock()


class ClockTracker(Tracker):
    """Is told of each step several times, first when its loss is known."""

    name = "clock"

    def __init__(self):
        self._steps = set()

    def log(self, metrics, *, step, commit=None):
        if step is not None and "train/loss" in metrics and step not in self._steps:
            self._steps.add(step)
            CLOCK.step_done()

    def log_hyperparameters(self, hparams):
        pass

    def log_summary(self, metrics):
        pass

    def log_artifact(self, artifact_path, *, name=None, type=None):
        pass

    def finish(self):
        pass


@TrackerConfig.register_subclass("clock")
@dataclass
class ClockConfig(TrackerConfig):
    def init(self, run_id):
        return ClockTracker()


def data(case, ids, store):
    texts = f"{store}/ids.jsonl"
    if not os.path.exists(texts):
        flat, length = np.fromfile(f"{ids}/train.bin", np.uint16), case["seq_len"]
        with open(texts, "w", encoding="utf-8") as file:
            for start in range(0, len(flat) - length + 1, length):
                file.write(json.dumps({"input_ids": flat[start : start + length].tolist()}) + "\n")
    source = UrlDatasetSourceConfig(train_urls=[texts])
    return LmDataConfig(
        tokenizer="passthrough",
        vocab_size=case["vocab_size"],
        cache_dir=f"{store}/cache",
        block_cross_document_attention=False,  # as all others here: whole windows
        components={"ids": DatasetComponent(source=source, format=PrebuiltLmDatasetFormat())},
    )


def write_tokenizer(case, store):
    """Words that are their ids. Training does not ask for it, but what would export the model loads one."""
    words = models.WordLevel({str(number): number for number in range(case["vocab_size"])}, unk_token="0")
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words)).save_pretrained(f"{store}/tokenizer")


def training(case, ids, store, output, action):
    sizes = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads")
    keeping = {"gradient_checkpointing": False} if action == "keeping" else {}
    every = case["save_every"]
    saving = {"keep": [{"every": every}]} if every else {"keep": None, "save_interval": timedelta(hours=1)}
    return train_lm.TrainLmConfig(
        data=data(case, ids, store),
        model=LlamaConfig(
            **{size: case[size] for size in sizes},
            max_seq_len=case["seq_len"],
            tokenizer=f"{store}/tokenizer",
            **keeping,
        ),
        optimizer=AdamConfig(learning_rate=1e-3, weight_decay=0.1, max_grad_norm=1.0),
        trainer=TrainerConfig(
            id=os.path.basename(output),
            mp=jmp.get_policy(POLICIES[case["precision"]]),
            tracker=(JsonLoggerConfig(), ClockConfig()),
            log_dir=Path(output, "logs"),
            train_batch_size=case["batch_size"],
            num_train_steps=case["steps"],
            checkpointer=CheckpointerConfig(base_path=f"{output}/checkpoints", **saving),
            require_accelerator=False,
        ),
    )


if __name__ == "__main__":
    case, ids, store, action = arguments()
    if action == "prepare":
        write_tokenizer(case, store)
        data(case, ids, store).build_caches("train")
    else:
        output = f"{store}/run-{os.getpid()}"
        train_lm.main(training(case, ids, store, output, action))
        CLOCK.say(case)
        shutil.rmtree(output)
