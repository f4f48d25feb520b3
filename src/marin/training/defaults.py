"""Every value that ``train_lm`` and its configs fill in when the author leaves it out.

They are written into the config, the fingerprint and the plan like any other value. Changing one here shows as drift
that names the key.
"""

from __future__ import annotations

from typing import Final

LEARNING_RATE: Final = 3e-3
"""Peak rate of the default optimizer: the usual choice for models of up to some ten million parameters. Larger models
want less (6e-4 at 100 million, 3e-4 at a billion): give ``optimizer=AdamConfig(lr=...)``."""

BETAS: Final = (0.9, 0.95)
"""Adam's decay rates. 0.95 rather than 0.999 for the second moment is common for language models: it forgets spikes."""

EPSILON: Final = 1e-8
"""Adam's guard against division by zero."""

WEIGHT_DECAY: Final = 0.1
"""Of matrices, embeddings included; never of norms."""

CLIP_NORM: Final = 1.0
"""Largest global norm of the gradient."""

SCHEDULE: Final = "cosine"
"""How the rate falls after the warm-up."""

WARMUP: Final = 0.05
"""Part of the steps in which the rate rises."""

MIN_LR_RATIO: Final = 0.1
"""The rate of the last step, relative to the peak."""

BATCH_SIZE: Final = 8
"""Sequences per step: small, so that a first run fits any machine."""

SEQ_LEN: Final = 2048
"""Tokens per sequence, where the model can take that many."""

NUM_TRAIN_EPOCHS: Final = 1
"""One pass over the data: no token is seen twice unless the author says so."""

SEED: Final = 0
"""Of the initial parameters and of the order of the data."""

Z_LOSS: Final = 0.0
"""Weight of the squared log-sum-exp of the logits. Off: it helps large runs in low precision only."""

PRECISION: Final = "float32"
"""Operands of matrix products. The same bits and a good speed everywhere; bfloat16 pays on hardware that has it."""

EVALS_PER_RUN: Final = 4
"""Without ``eval_every``: validation at this many evenly spaced steps, the last included, and before the first."""

CHECKPOINT_SECONDS: Final = 300.0
"""How much work an interruption may cost. Not identity: when the state was saved does not change the result."""
