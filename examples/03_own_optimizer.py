"""An optimizer of one's own, beside AdamW: a config with its learning rate, and the function that the config names.

Sign descent with momentum: each number moves by the learning rate, in the direction that its gradients mostly had. The
text is the source of a package of Python's standard library. Half a minute.
"""

import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import optax

from marin.experiment.data import files, tokenized, train_lm
from marin.experiment.main import experiment_main
from marin.experiment.models import llama_nano
from marin.training.optimizer_rules import clipping, weight_decay
from marin.training.optimizers import AdamConfig
from marin.training.schedules import learning_rate


@dataclass(frozen=True, kw_only=True)
class SignConfig:
    """Its fields are part of the recipe, as those of ``AdamConfig`` are."""

    # "module:function", here of this file. In a module of its own it keeps optax and jax out of this script.
    transformation: ClassVar[str] = f"{Path(__file__).stem}:sign_descent"

    lr: float
    momentum: float = 0.9
    clip_norm: float = 1.0
    weight_decay: float = 0.1
    decay_embeddings: bool = True

    def learning_rate(self, step, num_steps):
        """A function of the step only, so that a resumed training goes on with the right one."""
        return learning_rate(step, num_steps, lr=self.lr, schedule="wsd", warmup=0.1, decay=0.3, min_lr_ratio=0.1)


def sign_descent(config):
    """From gradients to directions; of each parameter the training subtracts its direction times the learning rate."""
    return optax.chain(
        *clipping(config.clip_norm), optax.ema(config.momentum), optax.scale_by_sign(), weight_decay(config)
    )


def build():
    source = files(f"{sysconfig.get_path('stdlib')}/asyncio/*.py", format="text")
    tokens = tokenized("tokenized/asyncio", source=source, held_out=0.1, tokenizer="bytes", version="2026.11.30")
    optimizers = {"adamw": AdamConfig(lr=1e-2), "sign-descent": SignConfig(lr=3e-3)}
    return {
        name: train_lm(
            name=f"checkpoints/asyncio-{name}",
            model=llama_nano,
            datasets={tokens: 1.0},
            optimizer=optimizer,
            batch_size=8,
            seq_len=128,
            num_train_steps=100,
        )
        for name, optimizer in optimizers.items()
    }


if __name__ == "__main__":
    for name, model in experiment_main(build, version="2026.11.30").items():
        before, after = model.initial_validation.bits_per_byte, model.validation.bits_per_byte
        print(f"{name:>12}: {before:.3f} bits per byte untrained, {after:.3f} trained")
    print("next: change sign_descent, and run again under another version: its code is no part of the recipe")
