"""The optimizers against their formulas, and against torch's; what decays; an optimizer of one's own."""

import math
import sys
import types
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from marin.errors import ConfigurationError
from marin.training.arrays import named_arrays
from marin.training.models import llama
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizer_rules import decay_counts, decays, transformation_of
from marin.training.optimizers import AdamConfig, LionConfig, SgdConfig

MODEL = LlamaConfig(hidden_dim=16, intermediate_dim=24, num_layers=2, num_heads=2, num_kv_heads=1, max_seq_len=64)
VOCAB = 40
STEPS = 200
# By their paths, so that every optimizer has an embedding, a matrix and a vector.
SHAPES = {"embed_tokens": (6, 4), "matrix": (5, 4), "vector": (4,)}


def gradients(seed=0):
    """Over five decades, from far below to far above the clipping norm; those of the vector are as small as epsilon."""
    random = np.random.default_rng(seed)
    for _ in range(STEPS):
        scale = 10.0 ** random.uniform(-4, 1)
        gradient = {name: scale * random.normal(size=shape) for name, shape in SHAPES.items()}
        yield {**gradient, "vector": 1e-6 * gradient["vector"]}


def first_params():
    random = np.random.default_rng(7)
    return {name: random.normal(size=shape) for name, shape in SHAPES.items()}


def as_float32(tree):
    return jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), tree)


def trained(config):
    """Parameters after all steps, moved as the training moves them."""
    transformation, params = transformation_of(config), as_float32(first_params())
    state, update = transformation.init(params), jax.jit(transformation.update)
    for step, gradient in enumerate(gradients()):
        directions, state = update(as_float32(gradient), state, params)
        rate = np.float32(config.learning_rate(step, STEPS))
        params = jax.tree.map(lambda array, way, rate=rate: array - rate * way, params, directions)
    return params


def adam_direction(config, gradient, memory, step):
    b1, b2 = config.betas
    memory["m"] = b1 * memory.get("m", 0) + (1 - b1) * gradient
    memory["v"] = b2 * memory.get("v", 0) + (1 - b2) * gradient**2
    return (memory["m"] / (1 - b1 ** (step + 1))) / (np.sqrt(memory["v"] / (1 - b2 ** (step + 1))) + config.eps)


def lion_direction(config, gradient, memory, step):
    b1, b2 = config.betas
    mean = memory.get("m", 0)
    memory["m"] = b2 * mean + (1 - b2) * gradient
    return np.sign(b1 * mean + (1 - b1) * gradient)


def sgd_direction(config, gradient, memory, step):
    memory["m"] = config.momentum * memory.get("m", 0) + gradient
    return gradient + config.momentum * memory["m"] if config.nesterov else memory["m"]


@pytest.mark.parametrize(
    ("config", "direction"),
    [
        (AdamConfig(lr=0.0123), adam_direction),
        (AdamConfig(lr=0.0123, betas=(0.0, 0.99), clip_norm=None), adam_direction),
        (AdamConfig(lr=0.0123, weight_decay=0.5, decay_embeddings=False), adam_direction),
        (LionConfig(lr=0.002), lion_direction),
        (LionConfig(lr=0.002, decay_embeddings=False, clip_norm=None), lion_direction),
        (SgdConfig(lr=0.05, weight_decay=0.1), sgd_direction),
        (SgdConfig(lr=0.05, nesterov=True, weight_decay=0.1, decay_embeddings=False), sgd_direction),
        (SgdConfig(lr=0.05, momentum=0), sgd_direction),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_an_optimizer_follows_its_formulas(config, direction):
    params, memories = first_params(), {name: {} for name in SHAPES}
    for step, gradient in enumerate(gradients()):
        norm, limit = math.sqrt(sum((g**2).sum() for g in gradient.values())), config.clip_norm or math.inf
        for name, array in params.items():
            way = direction(config, gradient[name] * min(1.0, limit / norm), memories[name], step)
            decayed = array.ndim == 2 and (config.decay_embeddings or name != "embed_tokens")
            decay = config.weight_decay * array if decayed else 0
            params[name] = array - config.learning_rate(step, STEPS) * (way + decay)
    ours = trained(config)
    for name, array in params.items():
        np.testing.assert_allclose(ours[name], array, atol=1e-5)


def trained_by_torch(config, make):
    """The same training by torch. Only the matrices decay, so vectors are a group without decay."""
    import torch  # noqa: PLC0415  # in the environment of make test-all only

    params = {name: torch.nn.Parameter(torch.tensor(array).float()) for name, array in first_params().items()}
    groups = [
        {"params": [array for array in params.values() if array.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [array for array in params.values() if array.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = make(torch, groups)
    for step, gradient in enumerate(gradients()):
        for name, array in params.items():
            array.grad = torch.tensor(gradient[name]).float()
        torch.nn.utils.clip_grad_norm_(params.values(), config.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate(step, STEPS)
        optimizer.step()
    return {name: array.detach().numpy() for name, array in params.items()}


@pytest.mark.heavy
@pytest.mark.parametrize("lr", [0.0123, 0.05])
def test_adamw_is_that_of_torch(lr):
    config = AdamConfig(lr=lr, warmup=0.1, schedule="cosine", weight_decay=0.1)
    theirs = trained_by_torch(
        config, lambda torch, groups: torch.optim.AdamW(groups, lr=lr, betas=config.betas, eps=config.eps)
    )
    ours = trained(config)
    for name in SHAPES:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_that_of_torch(nesterov):
    # Without decay: torch's is not decoupled from the momentum.
    config = SgdConfig(lr=0.05, nesterov=nesterov, warmup=0.1, schedule="wsd", weight_decay=0.0)
    theirs = trained_by_torch(
        config, lambda torch, groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=nesterov)
    )
    ours = trained(config)
    for name in SHAPES:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("config", [AdamConfig(lr=1.0), LionConfig(lr=1.0), SgdConfig(lr=1.0)], ids=str)
def test_a_gradient_is_clipped_by_its_norm_and_not_by_what_decays(config):
    params = as_float32({"matrix": np.full((2, 2), 100.0)})
    transformation = transformation_of(replace(config, clip_norm=2.0, weight_decay=0.1))

    def direction(gradient):
        return transformation.update(gradient, transformation.init(params), params)[0]["matrix"]

    large = as_float32({"matrix": np.full((2, 2), 8.0)})
    clipped = as_float32({"matrix": np.full((2, 2), 1.0)})
    np.testing.assert_allclose(direction(large), direction(clipped), rtol=1e-6)
    assert float(direction(large).min()) > 10


@pytest.mark.parametrize("config", [AdamConfig(lr=1.0), LionConfig(lr=1.0), SgdConfig(lr=1.0)], ids=str)
def test_directions_of_a_gradient_that_is_not_finite_are_computed_all_the_same(config):
    transformation, params = transformation_of(config), as_float32(first_params())
    gradient = as_float32(next(gradients()))
    gradient["vector"] = gradient["vector"].at[1].set(jnp.nan)
    state = transformation.init(params)
    directions, after = jax.jit(transformation.update)(gradient, state, params)
    assert jax.tree.map(jnp.shape, directions) == jax.tree.map(jnp.shape, params)
    assert jax.tree.structure(after) == jax.tree.structure(state)


# What decays


def a_model(**changes):
    return llama.init(jax.random.key(0), replace(MODEL, **changes), VOCAB)


def stacked(params):
    return {**params, "layers": jax.tree.map(lambda *arrays: jnp.stack(arrays), *params["layers"])}


def not_decayed(params, config):
    return {name for name, flag in named_arrays(decays(params, config)).items() if not flag}


NORMS = {f"layers.{i}.{norm}" for i in (0, 1) for norm in ("input_layernorm", "post_attention_layernorm")} | {"norm"}


def test_matrices_decay_and_vectors_do_not():
    assert not_decayed(a_model(), AdamConfig(lr=1.0)) == NORMS


@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_are_a_choice(tied):
    # The head is no embedding, unless it is the same matrix.
    assert not_decayed(a_model(tie_embeddings=tied), AdamConfig(lr=1.0, decay_embeddings=False)) == {
        "embed_tokens",
        *NORMS,
    }


@pytest.mark.parametrize("name", ["embed_tokens", "embed_positions", "wte", "wpe", "embeddings"])
def test_embeddings_are_known_by_their_names(name):
    spared = SgdConfig(lr=1.0, decay_embeddings=False)
    params = {name: jnp.ones((3, 2)), "unembed": jnp.ones((3, 2)), "inside": {name: {"rows": jnp.ones((3, 2))}}}
    assert decays(params, spared) == {name: False, "unembed": True, "inside": {name: {"rows": False}}}


def test_stacked_layers_decay_as_the_layers_do():
    params, config = a_model(), AdamConfig(lr=1.0)
    one, all_at_once = decays(params, config), decays(stacked(params), config)
    assert all_at_once["layers"] == one["layers"][0] == one["layers"][1]
    assert {**all_at_once, "layers": None} == {**one, "layers": None}


def test_stacked_layers_are_trained_as_the_layers_are():
    transformation = transformation_of(AdamConfig(lr=1.0, weight_decay=10.0, clip_norm=None))

    def direction(params):
        return transformation.update(jax.tree.map(jnp.ones_like, params), transformation.init(params), params)[0]

    params = a_model()
    jax.tree.map(np.testing.assert_array_equal, direction(stacked(params)), stacked(direction(params)))


def test_layers_that_are_no_stack_are_not_taken_for_one():
    params = {"layers": [jnp.ones((2, 2)), jnp.ones(2)], "other": {"layers": {"a": jnp.ones((2, 2))}}}
    assert decays(params, AdamConfig(lr=1.0)) == {"layers": [True, False], "other": {"layers": {"a": True}}}


MATRICES = 2 * VOCAB * 16 + 2 * (16 * (16 + 8 + 8) + 16 * 16 + 3 * 16 * 24)


@pytest.mark.parametrize("form", [lambda params: params, stacked], ids=["list", "stacked"])
@pytest.mark.parametrize(
    ("config", "line"),
    [
        (AdamConfig(lr=1.0), f"weight decay 0.1 on 16 matrices ({MATRICES:,} numbers), not on 5 vectors"),
        (
            LionConfig(lr=1.0, weight_decay=0.25, decay_embeddings=False),
            f"weight decay 0.25 on 15 matrices ({MATRICES - 640:,} numbers), "
            "not on 1 embedding (640 numbers) and 5 vectors",
        ),
        (SgdConfig(lr=1.0), "no weight decay"),
    ],
    ids=["all", "no embeddings", "off"],
)
def test_what_decays_is_counted(form, config, line):
    params = form(a_model())
    assert decay_counts(params, config) == line
    assert decay_counts(jax.eval_shape(lambda: params), config) == line


def test_one_of_each_is_counted_without_a_plural():
    config = AdamConfig(lr=1.0)
    assert decay_counts({"w": jnp.ones((2, 3))}, config) == "weight decay 0.1 on 1 matrix (6 numbers)"
    assert decay_counts({"b": jnp.ones(3)}, config) == "weight decay 0.1 on 0 matrices (0 numbers), not on 1 vector"


# An optimizer of one's own


@dataclass(frozen=True, kw_only=True)
class OwnConfig:
    transformation: ClassVar[str] = "own_rule:make"

    lr: float

    def learning_rate(self, step: int, num_steps: int) -> float:
        return self.lr


def renamed(name):
    return type("RenamedConfig", (OwnConfig,), {"transformation": name})(lr=1.0)


@pytest.fixture
def own_rule(monkeypatch):
    module = types.ModuleType("own_rule")
    module.make = lambda config: optax.scale(config.lr)
    module.nothing = lambda config: None
    module.number = 3
    monkeypatch.setitem(sys.modules, "own_rule", module)


@pytest.mark.usefixtures("own_rule")
def test_an_optimizer_of_ones_own_is_found_by_its_name():
    transformation = transformation_of(OwnConfig(lr=3.0))
    directions, _ = transformation.update({"w": jnp.ones(2)}, transformation.init({"w": jnp.ones(2)}))
    assert directions["w"].tolist() == [3.0, 3.0]
    assert decay_counts({"w": jnp.ones((2, 3))}, OwnConfig(lr=1.0)) == "weight decay is up to own_rule:make"


@pytest.mark.usefixtures("own_rule")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_rule", "its transformation 'own_rule' names no function: write 'my_project.my_rule:transformation'"),
        (":make", "its transformation ':make' names no function"),
        ("own_rule.make", "its transformation 'own_rule.make' names no function"),
        ("not_there:make", "its transformation 'not_there:make' can't be imported: No module named 'not_there'"),
        ("own_rule:maker", "own_rule has no function 'maker': correct the name, or define it there"),
        ("own_rule:number", "own_rule has no function 'number'"),
        ("own_rule:nothing", "returned NoneType: return an optax.GradientTransformation"),
    ],
)
def test_what_is_wrong_with_it_is_told(name, message):
    with pytest.raises(ConfigurationError, match=f"RenamedConfig: .*{message}"):
        transformation_of(renamed(name))
