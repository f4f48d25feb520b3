"""One step of training: loss, gradient, and the new state, compiled as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from marin.training.checkpoint import Precision
from marin.training.loss import MASKED, next_token_loss
from marin.training.models import llama
from marin.training.models.llama import Params
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import AdamConfig

Array = jax.Array


class TrainState(NamedTuple):
    """All that changes while training."""

    params: Params
    optimizer: Any


class Measured(NamedTuple):
    """What one step measured; ``finite`` is false if its update was not applied because a number was not."""

    loss: Array
    gradient_norm: Array
    finite: Array


Update: TypeAlias = Callable[[TrainState, Any, Any], tuple[TrainState, Measured]]


def compute_dtype(precision: Precision) -> jnp.dtype:
    """What the operands of matrix products are cast to."""
    return jnp.dtype(precision)


def batch_loss(
    params: Params, tokens: Array, model: LlamaConfig, dtype: jnp.dtype, z_loss: float
) -> tuple[Array, Array]:
    """Sum of the loss over the predicted tokens of a batch, and how many they are. ``tokens: [batch, seq + 1]``."""
    hidden = llama.hidden_states(params, jnp.maximum(tokens[:, :-1], 0), model, dtype)
    targets = tokens[:, 1:].reshape(-1)
    total = next_token_loss(hidden.reshape(targets.size, -1), llama.head(params), targets, dtype=dtype, z_loss=z_loss)
    return total, jnp.sum(targets != MASKED)


def make_optimizer(config: AdamConfig) -> optax.GradientTransformation:
    """Clipping, Adam and decoupled weight decay; the learning rate is applied by ``make_update``."""
    clip = [] if config.clip_norm is None else [optax.clip_by_global_norm(config.clip_norm)]
    adam = optax.scale_by_adam(b1=config.betas[0], b2=config.betas[1], eps=config.eps)
    return optax.chain(*clip, adam, optax.add_decayed_weights(config.weight_decay, mask=decays))


def global_norm(tree: Any) -> Array:
    """The Euclidean norm of all numbers of ``tree`` together."""
    return jnp.sqrt(sum((jnp.sum(jnp.square(array)) for array in jax.tree.leaves(tree)), start=jnp.zeros(())))


def decays(params: Params) -> Any:
    """Which parameters decay: matrices, of rank two or more."""

    def decays_one(array: Array) -> bool:
        return array.ndim >= 2

    return jax.tree.map(decays_one, params)


def new_state(model: LlamaConfig, optimizer: AdamConfig, *, vocab_size: int, seed: int) -> TrainState:
    """The state before the first step."""

    def make(key: Array) -> TrainState:
        params = llama.init(key, model, vocab_size)
        return TrainState(params, make_optimizer(optimizer).init(params))

    return jax.jit(make)(jax.random.key(seed))


def make_update(model: LlamaConfig, optimizer: AdamConfig, *, precision: Precision, z_loss: float) -> Update:
    """The function ``update(state, tokens, learning_rate)``. It consumes ``state`` and gives the next one.

    If the loss or a gradient is not finite, the state stays as it was.
    """
    transformation, dtype = make_optimizer(optimizer), compute_dtype(precision)

    def mean_loss(params: Params, tokens: Array) -> Array:
        total, count = batch_loss(params, tokens, model, dtype, z_loss)
        return total / count

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state: TrainState, tokens: Array, learning_rate: Array) -> tuple[TrainState, Measured]:
        loss, gradient = jax.value_and_grad(mean_loss)(state.params, tokens)
        norm = global_norm(gradient)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        directions, optimizer_state = transformation.update(gradient, state.optimizer, state.params)

        def moved(array: Array, direction: Array) -> Array:
            return array - learning_rate * direction

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(finite, new, old)

        proposed = TrainState(jax.tree.map(moved, state.params, directions), optimizer_state)
        return jax.tree.map(kept, proposed, state), Measured(loss, norm, finite)

    return update
