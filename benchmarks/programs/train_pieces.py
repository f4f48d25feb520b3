"""The pieces of a step of our training, each compiled by itself, with its gradients: ``train_pieces.py CASE``.

The same functions as in training, on arrays as they are there. Of the layers all is timed together, attention and MLP
by themselves, and the rest is what is left.
"""

import functools
import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from marin.training.devices import find_devices
from marin.training.loss import next_token_loss
from marin.training.models import llama
from marin.training.models.attention import attention
from marin.training.models.dot import dot
from marin.training.models.inputs import Inputs
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizer_rules import transformation_of
from marin.training.optimizers import AdamConfig, filled_in
from marin.training.placement import make_placement
from marin.training.update import Rows, TrainState, make_update, new_state

OPTIMIZER = filled_in(AdamConfig(lr=1e-3, weight_decay=0.1, clip_norm=1.0))
RATE = np.float32(1e-3)


def timed(function, *arguments, repeats):
    """The middle time of ``repeats``, by the clock and of the processors."""
    compiled = jax.jit(function)
    return repeated(lambda _: compiled(*arguments), None, repeats)


def consuming(update, state, repeats):
    """As ``timed``, of a function that uses the memory of the state before for the next one."""
    return repeated(update, state, repeats)


def repeated(function, value, repeats):
    seconds, cpu_seconds = [], []
    for _ in range(repeats + 1):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        value = jax.block_until_ready(function(value))
        seconds.append(time.perf_counter() - begun)
        cpu_seconds.append(time.process_time() - cpu_begun)
    return statistics.median(seconds[1:]), statistics.median(cpu_seconds[1:])  # the first one compiles


def with_gradients(function, count):
    """``function`` to one number, with the gradients by its first ``count`` arguments."""
    return jax.value_and_grad(lambda *arguments: jnp.sum(function(*arguments)), argnums=tuple(range(count)))


def layers_of(function, num_layers):
    """``function`` as often as there are layers, on arrays that the compiler can't take for the same."""

    def repeated(*arguments):
        return sum(jnp.sum(function(*(array[index] for array in arguments))) for index in range(num_layers))

    return repeated


def copied(tree):
    return jax.tree.map(jnp.copy, tree)


def pieces(case, repeats):
    sizes = ("hidden_dim", "intermediate_dim", "num_layers", "num_heads", "num_kv_heads")
    config = LlamaConfig(**{size: case[size] for size in sizes}, max_seq_len=case["seq_len"])
    placement = make_placement(find_devices("cpu"), None, precision=case["precision"])
    compute, vocab, layers = placement.compute, case["vocab_size"], case["num_layers"]
    state = new_state(config, OPTIMIZER, vocab_size=vocab, seed=0, placement=placement)
    random, rows = np.random.default_rng(0), (case["batch_size"], case["seq_len"])

    def normal(*shape, scale=1.0):
        return jnp.asarray(scale * random.standard_normal(shape, dtype=np.float32))

    tokens = jnp.asarray(random.integers(0, vocab, (rows[0], rows[1] + 1)), jnp.int32)
    hidden = normal(*rows, config.hidden_dim)
    heads, dim = config.num_heads, config.hidden_dim // config.num_heads
    q, k, v = (normal(layers, *rows, count, dim) for count in (heads, *2 * (config.num_kv_heads or heads,)))
    x = normal(layers, *rows, config.hidden_dim)
    joined = normal(layers, config.hidden_dim, 2 * config.intermediate_dim, scale=0.1)
    down = normal(layers, config.intermediate_dim, config.hidden_dim, scale=0.1)

    def loss(hidden, head):
        return next_token_loss(hidden, head, tokens[:, 1:], compute=compute)[0]

    def body(params):
        return llama.hidden_states(params, Inputs(tokens[:, :-1], None, None), config, compute)

    def mlp(x, joined, down):
        gate, up = jnp.split(dot(x, joined, compute.dtype), 2, axis=-1)
        return dot(jax.nn.silu(gate) * up, down, compute.dtype)

    def attend(q, k, v):
        return attention(q, k, v, segment_ids=None, compute=compute)

    gradient = copied(state.params)

    @functools.partial(jax.jit, donate_argnums=0)
    def optimize(state):
        directions, kept = transformation_of(OPTIMIZER).update(gradient, state.optimizer, state.params)
        params = jax.tree.map(lambda array, direction: array - RATE * direction, state.params, directions)
        return TrainState(params, kept)

    found = {
        "head": timed(with_gradients(loss, 2), hidden, llama.head(state.params), repeats=repeats),
        "attention": timed(with_gradients(layers_of(attend, layers), 3), q, k, v, repeats=repeats),
        "mlp": timed(with_gradients(layers_of(mlp, layers), 3), x, joined, down, repeats=repeats),
        "body": timed(with_gradients(body, 1), state.params, repeats=repeats),
        "optimizer": consuming(optimize, copied(state), repeats),
    }
    body_seconds = found.pop("body")
    taken = (found["attention"], found["mlp"])
    found["layers"] = tuple(all_of - sum(parts) for all_of, *parts in zip(body_seconds, *taken, strict=True))
    update, batch = make_update(config, OPTIMIZER, state=state, placement=placement), Rows(tokens)
    return found | {"whole": consuming(lambda state: update(state, batch, RATE)[0], state, repeats)}


if __name__ == "__main__":
    (case,) = map(json.loads, sys.argv[1:])
    said = {}
    for name, (seconds, cpu_seconds) in pieces(case, repeats=case["steps"]).items():
        said |= {name: max(seconds, 0.0), f"{name}_cpu": max(cpu_seconds, 0.0)}
    print(f"measured: {json.dumps(said)}")
