"""How well a model predicts a text: nats per token, bits per byte."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax

from marin.errors import DataError, TokenizerMismatchError
from marin.processing.tokenize.manifest import VALIDATION
from marin.processing.tokenize.open_stream import OpenSplit, open_split
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.arrays import load_arrays, tree_of
from marin.training.checkpoint import Checkpoint, Evaluation
from marin.training.compiling import compiler_options
from marin.training.data import validation_batches
from marin.training.models.compute import Compute
from marin.training.models.implementation import Params, implementation_of
from marin.training.models.model import ModelConfig
from marin.training.placement import Placement, make_placement
from marin.training.update import LossSums, Rows, batch_loss, rows_of

EvaluateBatch: TypeAlias = Callable[[Params, Rows], LossSums]

BATCH_TOKENS = 16_384
"""Predicted at once. Does not change the result beyond rounding."""


def evaluate(checkpoint: Checkpoint, cache: TokenizedCache, split: str = VALIDATION) -> Evaluation:
    """How well ``checkpoint`` predicts a split of ``cache``: every token once, in windows of the training's length.

    Tokens attend to what they attended to in the training: all before them in the window, or their own document only.

    Raises ``TokenizerMismatchError`` if the cache was made by another tokenizer than the checkpoint was trained with.
    """
    if not checkpoint.tokenizer.agrees_with(cache.tokenizer):
        raise TokenizerMismatchError(
            f"{cache.path} was made by tokenizer {cache.tokenizer.location}, but {checkpoint.path} was trained with "
            f"{checkpoint.tokenizer.location}: tokenize the text with the checkpoint's tokenizer"
        )
    placement = make_placement(jax.devices()[:1], None, precision=checkpoint.precision)
    evaluate_batch = make_evaluate_batch(checkpoint.config, placement.compute)
    params = placement.arranged(load_params(checkpoint))
    reader = open_split(cache, split)
    [found] = evaluate_splits(
        evaluate_batch,
        params,
        [reader],
        seq_len=checkpoint.seq_len,
        segments=checkpoint.packing == "segmented",
        placement=placement,
    )
    return found


def load_params(checkpoint: Checkpoint) -> Params:
    """The trained parameters, on JAX's default device, layers as a list."""
    file, config = checkpoint.checked_params_file(), checkpoint.config
    init = implementation_of(config).init
    shapes = jax.eval_shape(lambda key: init(key, config, checkpoint.vocab_size), jax.random.key(0))
    return jax.tree.map(jax.numpy.asarray, tree_of(load_arrays(file), shapes, origin=file))


def make_evaluate_batch(config: ModelConfig, compute: Compute) -> EvaluateBatch:
    """The compiled function from parameters and a batch to its summed loss."""
    loss = functools.partial(batch_loss, config=config, compute=compute)
    return jax.jit(loss, compiler_options=compiler_options(compute.device))


def evaluate_splits(
    evaluate_batch: EvaluateBatch,
    params: Params,
    splits: Sequence[OpenSplit],
    *,
    seq_len: int,
    segments: bool,
    placement: Placement,
    between: Callable[[], None] = lambda: None,
) -> list[Evaluation]:
    """Each split's own, in their order. ``between`` is called before each batch, and may raise to stop.

    ``segments``: tokens attend to those of their own document only. The loss of the predicted tokens (all but the
    first) is scaled to all tokens, and then to bytes; of a split that masks some, it is not known how much text the
    others are.
    """
    rows = -(-max(1, BATCH_TOKENS // seq_len) // placement.batch_parts) * placement.batch_parts
    found = list[Evaluation]()
    for split in splits:
        if split.num_tokens < 2 or not split.text_bytes:
            raise DataError(
                f"the {split.split} split of {split.path} has {split.num_tokens} tokens, "
                f"{split.text_bytes} bytes of text: nothing can be predicted; hold out more text"
            )
        nats, predicted = 0.0, 0
        for batch in validation_batches(split, seq_len=seq_len, batch_size=rows, segments=segments):
            between()
            sums = evaluate_batch(params, placement.put_rows(rows_of(batch)))
            nats, predicted = nats + float(sums.nats), predicted + int(sums.learned)
        if not predicted:
            raise DataError(
                f"the {split.split} split of {split.path} masks all its tokens: nothing is predicted; "
                "validate on text whose loss mask leaves some"
            )
        is_masked = predicted < split.num_tokens - 1
        bits = nats / predicted * split.num_tokens / split.text_bytes / math.log(2)
        found.append(Evaluation(loss=nats / predicted, bits_per_byte=None if is_masked else bits, tokens=predicted))
    return found


def together(evaluations: Sequence[Evaluation], splits: Sequence[OpenSplit]) -> Evaluation:
    """All tokens of all splits as one text."""
    predicted = sum(each.tokens for each in evaluations)
    loss = sum(each.loss * each.tokens for each in evaluations) / predicted
    known = [each.bits_per_byte for each in evaluations if each.bits_per_byte is not None]
    text_bytes = [split.text_bytes for split in splits]
    bits = sum(rate * size for rate, size in zip(known, text_bytes, strict=False)) / sum(text_bytes)
    return Evaluation(loss=loss, bits_per_byte=bits if len(known) == len(splits) else None, tokens=predicted)
