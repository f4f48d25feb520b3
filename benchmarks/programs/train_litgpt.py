"""A training by litgpt's pretraining, which needs a C++ compiler: ``train_litgpt.py CASE IDS STORE prepare|train``."""

import os
import shutil
import sys
from pathlib import Path

import lightning
import numpy as np
import torch
from litgpt import pretrain
from litgpt.args import EvalArgs, TrainArgs
from litgpt.config import Config
from litgpt.data import DataModule
from torch.utils.data import DataLoader, Dataset, Subset
from train_clock import Clock, arguments

CLOCK = Clock()


class Windows(Dataset):
    """Of one token more than a sequence: the last is only predicted."""

    def __init__(self, ids, length):
        self._ids, self._length = np.fromfile(f"{ids}/train.bin", np.uint16).astype(np.int64), length

    def __len__(self):
        return (len(self._ids) - 1) // self._length

    def __getitem__(self, index):
        start = index * self._length
        return torch.from_numpy(self._ids[start : start + self._length + 1])


class Ids(DataModule):
    def __init__(self, ids, length):
        super().__init__()
        self._windows = Windows(ids, length)

    def connect(self, tokenizer=None, batch_size=1, max_seq_length=None):
        self._batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self._windows, batch_size=self._batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(Subset(self._windows, range(self._batch_size)), batch_size=self._batch_size)


def train(case, ids, output):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{output}/compiled"  # compiled anew, as ours is
    log = lightning.Fabric.log_dict

    def noting(fabric, metrics, step=None):
        if "loss" in metrics:
            CLOCK.step_done()
        log(fabric, metrics, step)

    lightning.Fabric.log_dict = noting
    pretrain.setup(
        model_name="bench",
        model_config=Config(
            name="bench",
            block_size=case["seq_len"],
            vocab_size=case["vocab_size"],
            padded_vocab_size=case["vocab_size"],
            n_layer=case["num_layers"],
            n_head=case["num_heads"],
            n_query_groups=case["num_kv_heads"],
            n_embd=case["hidden_dim"],
            intermediate_size=case["intermediate_dim"],
            rotary_percentage=1.0,
            parallel_residual=False,
            bias=False,
            norm_class_name="RMSNorm",
            mlp_class_name="LLaMAMLP",
        ),
        out_dir=Path(output),
        precision="32-true" if case["precision"] == "float32" else "bf16-mixed",
        data=Ids(ids, case["seq_len"]),
        train=TrainArgs(
            save_interval=case["save_every"] or None,
            log_interval=1,
            global_batch_size=case["batch_size"],
            micro_batch_size=case["batch_size"],
            max_tokens=case["steps"] * case["batch_size"] * case["seq_len"],
            max_norm=1.0,
            lr_warmup_steps=1,
            tie_embeddings=False,
        ),
        eval=EvalArgs(interval=10**9, max_iters=1, final_validation=False),
        optimizer={
            "class_path": "torch.optim.AdamW",
            "init_args": {"lr": 1e-3, "weight_decay": 0.1, "betas": (0.9, 0.95)},
        },
        logger_name="csv",
    )
    CLOCK.say(case)


if __name__ == "__main__":
    case, ids, store, action = arguments()
    if action == "train":
        output = f"{store}/run-{os.getpid()}"
        # It writes down its own command line beside a checkpoint, and parses it again for that.
        sys.argv[1:] = ["bench"]
        train(case, ids, output)
        shutil.rmtree(output)
