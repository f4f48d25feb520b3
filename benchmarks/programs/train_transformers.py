"""A training by the Trainer of transformers: ``train_transformers.py CASE IDS STORE prepare|train``."""

import os
import shutil

from train_clock import Clock, arguments

CLOCK = Clock()


def prepare(case, ids, store):
    import datasets  # noqa: PLC0415  # each action pays for its own imports
    import numpy as np  # noqa: PLC0415

    flat = np.fromfile(f"{ids}/train.bin", np.uint16)
    length = case["seq_len"]
    windows = flat[: len(flat) // length * length].reshape(-1, length).astype(np.int32)
    datasets.Dataset.from_dict({"input_ids": windows, "labels": windows}).save_to_disk(f"{store}/windows")


def train(case, store):
    import datasets  # noqa: PLC0415
    from transformers import (  # noqa: PLC0415
        LlamaConfig,
        LlamaForCausalLM,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        default_data_collator,
    )

    class Noting(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            CLOCK.step_done()

    output = f"{store}/run-{os.getpid()}"
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=case["vocab_size"],
            hidden_size=case["hidden_dim"],
            intermediate_size=case["intermediate_dim"],
            num_hidden_layers=case["num_layers"],
            num_attention_heads=case["num_heads"],
            num_key_value_heads=case["num_kv_heads"],
            max_position_embeddings=case["seq_len"],
            tie_word_embeddings=False,
        )
    )
    saving = {"save_strategy": "steps", "save_steps": case["save_every"]} if case["save_every"] else {}
    Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=case["batch_size"],
            max_steps=case["steps"],
            learning_rate=1e-3,
            weight_decay=0.1,
            adam_beta2=0.95,
            max_grad_norm=1.0,
            lr_scheduler_type="cosine",
            bf16=case["precision"] == "bfloat16",
            use_cpu=True,
            logging_steps=10,
            eval_strategy="no",
            report_to="none",
            **(saving or {"save_strategy": "no"}),
        ),
        train_dataset=datasets.load_from_disk(f"{store}/windows"),
        data_collator=default_data_collator,
        callbacks=[Noting()],
    ).train()
    CLOCK.say(case)
    shutil.rmtree(output, ignore_errors=True)


if __name__ == "__main__":
    case, ids, store, action = arguments()
    if action == "prepare":
        prepare(case, ids, store)
    else:
        train(case, store)
