"""How well a model predicts a text: nats per token, bits per byte."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax

from marin.errors import DataError, TokenizerMismatchError
from marin.processing.tokenize.cache import TokenCache
from marin.processing.tokenize.manifest import VALIDATION
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.arrays import load_arrays, tree_of
from marin.training.checkpoint import PARAMS_FILE, Checkpoint, Evaluation, Precision
from marin.training.data import validation_batches
from marin.training.models import llama
from marin.training.models.llama import Params
from marin.training.models.llama_config import LlamaConfig
from marin.training.update import batch_loss, compute_dtype

EvaluateBatch: TypeAlias = Callable[[Params, Any], tuple[jax.Array, jax.Array]]

BATCH_TOKENS = 16_384
"""Predicted at once. Does not change the result beyond rounding."""


def evaluate(checkpoint: Checkpoint, cache: TokenizedCache, split: str = VALIDATION) -> Evaluation:
    """How well ``checkpoint`` predicts a split of ``cache``: every token once, in windows of the training's length.

    Raises ``TokenizerMismatchError`` if the cache was made by another tokenizer than the checkpoint was trained with.
    """
    if not checkpoint.tokenizer.agrees_with(cache.tokenizer):
        raise TokenizerMismatchError(
            f"{cache.path} was made by tokenizer {cache.tokenizer.location}, but {checkpoint.path} was trained with "
            f"{checkpoint.tokenizer.location}: tokenize the text with the checkpoint's tokenizer"
        )
    reader = TokenCache.open(cache.path, split)
    evaluate_batch = make_evaluate_batch(checkpoint.model, checkpoint.precision)
    return evaluate_readers(evaluate_batch, load_params(checkpoint), [reader], seq_len=checkpoint.seq_len)


def load_params(checkpoint: Checkpoint) -> Params:
    """The trained parameters, on JAX's default device."""
    file, key = os.path.join(checkpoint.path, PARAMS_FILE), jax.random.key(0)
    shapes = jax.eval_shape(
        functools.partial(llama.init, config=checkpoint.model, vocab_size=checkpoint.vocab_size), key
    )
    return jax.tree.map(jax.numpy.asarray, tree_of(load_arrays(file), shapes, origin=file))


def make_evaluate_batch(model: LlamaConfig, precision: Precision) -> EvaluateBatch:
    """The compiled function from parameters and a batch to the summed loss and the number of predicted tokens."""
    dtype = compute_dtype(precision)

    @functools.partial(jax.jit)
    def evaluate_batch(params: Params, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        return batch_loss(params, tokens, model, dtype, 0.0)

    return evaluate_batch


def evaluate_readers(
    evaluate_batch: EvaluateBatch,
    params: Params,
    readers: Sequence[TokenCache],
    *,
    seq_len: int,
    between: Callable[[], None] = lambda: None,
) -> Evaluation:
    """All tokens of all ``readers`` together. ``between`` is called before each batch, and may raise to stop.

    The loss is scaled from the predicted tokens (all but each reader's first) to all tokens, and then to bytes.
    """
    nats, predicted, tokens, text_bytes = 0.0, 0, 0, 0
    for reader in readers:
        if reader.num_tokens < 2 or not reader.text_bytes:
            raise DataError(
                f"the {reader.split} split of {reader.path} has {reader.num_tokens} tokens, "
                f"{reader.text_bytes} bytes of text: nothing can be predicted; hold out more text"
            )
        for batch in validation_batches(reader, seq_len=seq_len, batch_size=max(1, BATCH_TOKENS // seq_len)):
            between()
            total, count = evaluate_batch(params, batch)
            nats, predicted = nats + float(total), predicted + int(count)
        tokens, text_bytes = tokens + reader.num_tokens, text_bytes + reader.text_bytes
    loss = nats / predicted
    return Evaluation(loss=loss, bits_per_byte=loss * tokens / text_bytes / math.log(2), tokens=predicted)
