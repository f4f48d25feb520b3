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

LION_BETAS: Final = (0.9, 0.99)
"""Lion's: the sign forgets a gradient in ten steps, the mean that is kept in a hundred, as its authors have it."""

MOMENTUM: Final = 0.9
"""Of stochastic gradient descent: a gradient goes on for about ten steps."""

WEIGHT_DECAY: Final = 0.1
"""Of matrices, per step and times the learning rate; never of norms and biases."""

LION_WEIGHT_DECAY: Final = 1.0
"""Lion's rate is about a tenth of AdamW's: so their product, which is what decays, is the same."""

SGD_WEIGHT_DECAY: Final = 0.0
"""Off: rates that suit stochastic gradient descent are a hundred times AdamW's, and would decay as much faster."""

DECAY_EMBEDDINGS: Final = True
"""Embeddings are matrices. Decay keeps those of rare tokens, which hardly ever have a gradient, from staying large."""

CLIP_NORM: Final = 1.0
"""Largest global norm of the gradient."""

SCHEDULE: Final = "cosine"
"""How the rate falls after the warm-up."""

WARMUP: Final = 0.05
"""Part of the steps in which the rate rises."""

WSD_DECAY: Final = 0.2
"""Part of the steps in which "wsd" lets the rate fall. Long enough to gain what a decay from the start would; the 80 %
before it can be shared by trainings of several lengths. Shorter is cheaper to branch off and ends a little worse."""

MIN_LR_RATIO: Final = 0.1
"""The rate of the last step, relative to the peak, in schedules that fall."""

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

STOP_SECONDS: Final = 300.0
"""How long a training that is told to stop may take to end its step and to save its state, before it is killed. A large
state on a slow disk takes minutes; a second Ctrl-C waits for nothing. Not identity."""

ENVIRONMENT: Final = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Of the process that trains, where whoever runs it has not set it. On CPUs a step writes to half a gigabyte of fresh
memory: in large pages, which Linux gives when asked, a step takes a sixth less time. Not identity."""

PACKING: Final = "concatenated"
"""Windows attend across documents: the usual choice for pre-training, and the fastest."""

HF_EXPORT: Final = "float32"
"""The type of the model's files for Hugging Face's tools: that of the parameters, so that nothing is lost."""

GRAD_ACCUMULATION: Final = 1
"""The whole batch at once. More pieces take less memory; not identity."""

ON_NONFINITE: Final = "stop"
"""A loss that is not a number has a cause that the author will want to know before more compute is spent."""

MAX_SKIPPED_STEPS: Final = 10
"""With ``on_nonfinite="skip"``: more than a few bad updates are no accident."""

CHECKPOINTS_KEPT: Final = 2
"""Rolling checkpoints that are kept: if the newest turns out to be damaged, there is one more."""
