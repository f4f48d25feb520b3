"""Evaluations of the user's own, asked whenever a training validates.

One is a function in a module, named as ``"my_project.evals:accuracy"``::

    def accuracy(model: EvaluatedModel) -> dict[str, float]:
        logits = model.logits(prompts)  # [batch, seq, vocab], of token ids [batch, seq]
        ...
        return {"accuracy": correct / len(prompts)}

What it returns goes into the metrics as ``evals/accuracy/<key>``. It must not depend on what was asked before: after an
interruption it may be asked again at the same step.

One that fails before the first step ends the training, which has nothing to lose then. One that fails later does not:
the log says so each time, and ``evals/accuracy/failed`` is 1 at that step.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
from jax.sharding import NamedSharding, PartitionSpec

from marin.errors import ConfigurationError
from marin.processing.tokenize.tokenize import TokenizerIdentity
from marin.training.compiling import compiler_options
from marin.training.models.compute import Compute
from marin.training.models.dot import dot
from marin.training.models.implementation import Params, implementation_of
from marin.training.models.inputs import Inputs
from marin.training.models.model import ModelConfig

Array = jax.Array

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EvaluatedModel:
    """A model as it is after ``step`` updates. ``params`` lie on the devices of the training."""

    step: int
    config: ModelConfig
    params: Params
    tokenizer: TokenizerIdentity
    logits: Callable[[Any], Array]
    """From token ids ``[batch, seq]`` to float32 logits of each next token, ``[batch, seq, vocab]``."""


EvalFunction: TypeAlias = Callable[[EvaluatedModel], Mapping[str, float]]


def eval_functions(names: Sequence[str]) -> dict[str, EvalFunction]:
    """The functions, by the last part of their names. Raises ``ConfigurationError`` for one that can't be had."""
    found = dict[str, EvalFunction]()
    for name in names:
        module, _, function = name.partition(":")
        try:
            found[function] = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as fault:
            raise ConfigurationError(f"evals: {name!r} can't be imported: {fault}") from fault
    if len(found) < len(names):
        raise ConfigurationError(f"evals={tuple(names)!r}: two have one name, and so would their metrics: rename one")
    return found


def make_logits(config: ModelConfig, compute: Compute) -> Callable[[Params, Array], Array]:
    """The compiled function from parameters and token ids to logits."""
    model = implementation_of(config)

    def logits(params: Params, tokens: Array) -> Array:
        return dot(model.hidden_states(params, Inputs(tokens), config, compute), model.head(params), compute.dtype)

    mesh, options = compute.mesh, compiler_options(compute.device)
    if mesh is None or not mesh.is_multi_process:
        return jax.jit(logits, compiler_options=options)
    # Whole on every device: the author's function looks at all of them, and other hosts have a part.
    return jax.jit(logits, out_shardings=NamedSharding(mesh, PartitionSpec()), compiler_options=options)


def eval_row(functions: Mapping[str, EvalFunction], model: EvaluatedModel) -> dict[str, float]:
    """What all of them measure. Before the first step it raises what they raise, and ``ConfigurationError`` for an
    answer that is no mapping to numbers; later it says that they failed."""
    row = dict[str, float]()
    for name, function in functions.items():
        try:
            row |= {f"evals/{name}/{key}": value for key, value in _answer(name, function, model).items()}
        except Exception as fault:
            if not model.step:
                raise
            _LOG.warning("evals: %s failed after step %d: the training goes on", name, model.step, exc_info=fault)
            row[f"evals/{name}/failed"] = 1.0
    return row


def _answer(name: str, function: EvalFunction, model: EvaluatedModel) -> dict[str, float]:
    answer: Any = function(model)
    try:
        return {str(key): float(value) for key, value in answer.items()}
    except (AttributeError, TypeError, ValueError) as fault:
        raise ConfigurationError(f"evals: {name} returned {answer!r}: return a dict from names to numbers") from fault
