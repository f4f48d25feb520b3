"""One step of training: loss, gradient, and the new state, compiled as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from marin.errors import ConfigurationError
from marin.processing.mixture.windows import Batch
from marin.training.arrays import named_leaves
from marin.training.compiling import compiler_options
from marin.training.loss import MASKED, next_token_loss
from marin.training.models.compute import Compute
from marin.training.models.implementation import Params, implementation_of, partition_of
from marin.training.models.inputs import Inputs
from marin.training.models.model import ModelConfig
from marin.training.optimizer_rules import transformation_of
from marin.training.optimizers import OptimizerConfig
from marin.training.placement import Placement

Array = jax.Array


class Rows(NamedTuple):
    """The arrays of a batch, on host or devices; shapes as of ``Batch``. ``None``: all are learned, one segment."""

    tokens: Any
    loss_mask: Any = None
    segment_ids: Any = None
    positions: Any = None


class TrainState(NamedTuple):
    """All that changes while training."""

    params: Params
    optimizer: Any


class Measured(NamedTuple):
    """What one step measured. ``finite`` is false if its update was not applied because a number was not.

    ``loss`` is the mean cross-entropy of the ``learned`` targets, in nats; without any it means nothing.
    """

    loss: Array
    gradient_norm: Array
    finite: Array
    learned: Array
    wishes: Array | None = None
    """What the hosts want, if there are several: of each number the largest."""


class LossSums(NamedTuple):
    """Sums over the learned targets: what training lowers, the cross-entropy alone, and how many there are."""

    lowered: Array
    nats: Array
    learned: Array


class Update(Protocol):
    """From the state, a batch and the learning rate to the next state. It consumes the state."""

    def __call__(
        self, state: TrainState, rows: Rows, learning_rate: Any, wishes: Any = None, /
    ) -> tuple[TrainState, Measured]:
        """``wishes`` are those of all hosts, if there are several."""
        ...


def rows_of(batch: Batch) -> Rows:
    """The arrays of ``batch``."""
    return Rows(batch.tokens, batch.loss_mask, batch.segment_ids, batch.positions)


def batch_loss(params: Params, rows: Rows, config: ModelConfig, compute: Compute, z_loss: float = 0.0) -> LossSums:
    """The loss of a batch of ``[batch, seq + 1]`` tokens: of each that is learned, from those before it."""
    model = implementation_of(config)
    inputs = Inputs(rows.tokens[:, :-1], rows.positions, rows.segment_ids)
    hidden = model.hidden_states(params, inputs, config, compute)
    targets = rows.tokens[:, 1:] if rows.loss_mask is None else jnp.where(rows.loss_mask, rows.tokens[:, 1:], MASKED)
    lowered, nats = next_token_loss(hidden, model.head(params), targets, compute=compute, z_loss=z_loss)
    return LossSums(lowered, nats, jnp.sum(targets != MASKED))


def global_norm(tree: Any) -> Array:
    """The Euclidean norm of all numbers of ``tree`` together."""
    return jnp.sqrt(sum((jnp.sum(jnp.square(array)) for array in jax.tree.leaves(tree)), start=jnp.zeros(())))


def new_state(
    config: ModelConfig, optimizer: OptimizerConfig, *, vocab_size: int, seed: int, placement: Placement
) -> TrainState:
    """The state before the first step, on its devices. The same seed gives the same bits on any of them."""
    make = _state_maker(config, optimizer, vocab_size=vocab_size, placement=placement)
    key = jax.random.key(seed)
    shardings = placement.shardings(jax.eval_shape(make, key), partition_of(implementation_of(config)))
    return jax.jit(make, out_shardings=shardings, compiler_options=compiler_options(placement.device))(key)


def state_shapes(
    config: ModelConfig, optimizer: OptimizerConfig, *, vocab_size: int, placement: Placement
) -> TrainState:
    """The shapes of what ``new_state`` makes. Nothing is compiled, and no memory is taken."""
    make = _state_maker(config, optimizer, vocab_size=vocab_size, placement=placement)
    return jax.eval_shape(make, jax.random.key(0))


def _state_maker(
    config: ModelConfig, optimizer: OptimizerConfig, *, vocab_size: int, placement: Placement
) -> Callable[[Array], TrainState]:
    model = implementation_of(config)

    def make(key: Array) -> TrainState:
        params = placement.arranged(model.init(key, config, vocab_size))
        kept = transformation_of(optimizer).init(params)
        _check_kept(kept, optimizer)
        return TrainState(params, kept)

    return make


def _check_kept(state: Any, optimizer: OptimizerConfig) -> None:
    """Raise ``ConfigurationError`` for what an optimizer keeps and no checkpoint can hold."""
    for name, leaf in named_leaves(state).items():
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise ConfigurationError(
                f"{type(optimizer).__name__}: what {optimizer.transformation!r} makes keeps {name} as {leaf.dtype}, "
                "which no checkpoint can hold: keep the numbers of a random key, jax.random.key_data(key)"
            )


def make_update(
    config: ModelConfig,
    optimizer: OptimizerConfig,
    *,
    state: TrainState,
    placement: Placement,
    z_loss: float = 0.0,
    grad_accumulation: int = 1,
) -> Update:
    """The function of one step, for states that are laid out as ``state``.

    With ``grad_accumulation`` the batch is computed in so many pieces, one after the other, for less memory; the
    gradient is that of the whole batch. If the loss or a gradient is not finite, the state stays as it was.
    """
    transformation, compute = transformation_of(optimizer), placement.compute

    def summed_loss(params: Params, rows: Rows) -> tuple[Array, LossSums]:
        sums = batch_loss(params, rows, config, compute, z_loss)
        return sums.lowered, sums

    def mean_loss(params: Params, rows: Rows) -> tuple[Array, LossSums]:
        sums = batch_loss(params, rows, config, compute, z_loss)
        return sums.lowered / jnp.maximum(sums.learned, 1), sums  # a batch may hold nothing that is learned

    def gradient_of(params: Params, rows: Rows) -> tuple[Params, LossSums]:
        if grad_accumulation == 1:
            return jax.grad(mean_loss, has_aux=True)(params, rows)

        def add(carry: tuple[Params, LossSums], piece: Rows) -> tuple[tuple[Params, LossSums], None]:
            return jax.tree.map(jnp.add, carry, jax.grad(summed_loss, has_aux=True)(params, piece)), None

        start = jax.tree.map(jnp.zeros_like, params), LossSums(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))
        pieces = jax.tree.map(lambda array: _pieces(array, grad_accumulation, placement), rows)
        (gradient, sums), _ = jax.lax.scan(add, start, pieces)
        count = jnp.maximum(sums.learned, 1)
        return jax.tree.map(lambda array: array / count, gradient), sums

    @functools.partial(
        jax.jit,
        donate_argnums=0,
        compiler_options=compiler_options(placement.device),
        # What comes back is laid out as what went in; the compiler would choose otherwise.
        out_shardings=(jax.tree.map(lambda array: array.sharding, state), None),
    )
    def update(
        state: TrainState, rows: Rows, learning_rate: Array, wishes: Array | None = None
    ) -> tuple[TrainState, Measured]:
        gradient, sums = gradient_of(state.params, rows)
        norm = global_norm(gradient)
        directions, optimizer_state = transformation.update(gradient, state.optimizer, state.params)
        # The directions too: the rule, and the rate, may be the author's own.
        step_size = learning_rate * global_norm(directions)
        finite = jnp.isfinite(sums.lowered) & jnp.isfinite(norm) & jnp.isfinite(step_size)

        def moved(array: Array, direction: Array) -> Array:
            return array - learning_rate * direction

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(finite, new, old)

        proposed = TrainState(jax.tree.map(moved, state.params, directions), optimizer_state)
        loss = sums.nats / jnp.maximum(sums.learned, 1)
        answer = None if wishes is None else placement.largest_wish(wishes)
        return jax.tree.map(kept, proposed, state), Measured(loss, norm, finite, sums.learned, answer)

    return update


def _pieces(array: Array, count: int, placement: Placement) -> Array:
    """``[batch, ...] -> [count, batch / count, ...]``, each piece spread over the devices as the whole is."""
    parts = placement.batch_parts
    cut = array.reshape(parts, count, -1, *array.shape[1:]).swapaxes(0, 1)
    pieces = cut.reshape(count, -1, *array.shape[1:])
    return placement.compute.activations(pieces, None, "batch", *(None for _ in array.shape[1:]))
