"""Parameters and operations, counted in what is made and computed."""

import math

import jax
import jax.extend
import jax.numpy as jnp
import pytest

from marin.training.models.compute import Compute
from marin.training.models.gpt2_config import Gpt2Config
from marin.training.models.implementation import implementation_of
from marin.training.models.inputs import Inputs
from marin.training.models.llama_config import LlamaConfig

VOCAB, BATCH, SEQ = 50, 2, 24

SIZES = {"hidden_dim": 32, "intermediate_dim": 48, "num_layers": 2, "num_heads": 4, "max_seq_len": 64}
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "grouped, tied": LlamaConfig(**SIZES, num_kv_heads=2, tie_embeddings=True),
    "qwen 2": LlamaConfig(**SIZES, num_kv_heads=2, qkv_bias=True),
    "qwen 3": LlamaConfig(**SIZES, num_kv_heads=2, qk_norm=True, head_size=12),
    "gpt-2": Gpt2Config(hidden_dim=32, num_layers=2, num_heads=4, max_seq_len=64),
    "gpt-2, narrow": Gpt2Config(hidden_dim=32, num_layers=3, num_heads=2, max_seq_len=16, intermediate_dim=40),
}
models = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)


def shapes_of(config):
    init = implementation_of(config).init
    return jax.eval_shape(lambda key: init(key, config, VOCAB), jax.random.key(0))


@models
def test_as_many_parameters_are_made_as_are_counted(config):
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes_of(config))) == config.num_params(VOCAB)


def forward(config):
    model, tokens = implementation_of(config), jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32)
    compute = Compute(dtype=jnp.dtype("float32"), attention="reference")

    def logits(params, tokens):
        return model.hidden_states(params, Inputs(tokens), config, compute) @ model.head(params)

    return jax.jit(logits).trace(shapes_of(config), tokens)


def matrix_operations(jaxpr):
    """Of every product of matrices in a program, two for each multiply-add."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
        for inner in jax.tree.leaves(list(equation.params.values())):
            if isinstance(inner, jax.extend.core.ClosedJaxpr):
                total += matrix_operations(inner.jaxpr)
    return total


def counted(config):
    """The config's count for a forward pass that looks at all positions, as the reference does, not at half of them."""
    return config.flops_per_token(VOCAB, seq_len=2 * SEQ - 1) / 3 * BATCH * SEQ


@models
def test_the_forward_pass_has_exactly_the_operations_that_are_counted(config):
    assert matrix_operations(forward(config).jaxpr.jaxpr) == counted(config)


@models
def test_the_compiler_counts_the_same_and_some_for_what_is_no_product(config):
    """XLA counts every addition and exponential too: some in a hundred of the whole at these sizes, fewer at larger."""
    analysis = forward(config).lower().cost_analysis()
    assert 1.0 <= analysis["flops"] / counted(config) < 1.15
