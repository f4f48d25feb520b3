"""What optimizers compute: optax transformations from gradients to directions, which the training scales by its rate.

Directions are computed whatever the gradients are. If these are not finite, the directions and the new state of the
optimizer are not either; the training then applies neither, so nothing here has to look for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import jax
import optax

from marin.errors import ConfigurationError
from marin.training.models.layers import LAYERS
from marin.training.optimizers import AdamConfig, Decaying, LionConfig, OptimizerConfig, SgdConfig

EMBEDDINGS = ("embed", "wte", "wpe")
"""A parameter is an embedding if its name, or that of a group which it is in, begins so: ``embed_tokens``."""


def adamw(config: AdamConfig) -> optax.GradientTransformation:
    """Clipping, Adam, decoupled weight decay."""
    adam = optax.scale_by_adam(b1=config.betas[0], b2=config.betas[1], eps=config.eps)
    return optax.chain(*clipping(config.clip_norm), adam, weight_decay(config))


def lion(config: LionConfig) -> optax.GradientTransformation:
    """Clipping, Lion, decoupled weight decay."""
    signs = optax.scale_by_lion(b1=config.betas[0], b2=config.betas[1])
    return optax.chain(*clipping(config.clip_norm), signs, weight_decay(config))


def sgd(config: SgdConfig) -> optax.GradientTransformation:
    """Clipping, momentum, decoupled weight decay."""
    momentum = [optax.trace(config.momentum, nesterov=config.nesterov)] if config.momentum else []
    return optax.chain(*clipping(config.clip_norm), *momentum, weight_decay(config))


def clipping(clip_norm: float | None) -> list[optax.GradientTransformation]:
    """Scales the gradient down to ``clip_norm``, where its global norm is larger; ``None``: nothing."""
    return [] if clip_norm is None else [optax.clip_by_global_norm(clip_norm)]


def weight_decay(config: Decaying) -> optax.GradientTransformation:
    """Adds ``weight_decay`` times each parameter that ``decays`` to its direction. Comes last: it is not clipped."""

    def mask(tree: Any) -> Any:
        return decays(tree, config)

    return optax.add_decayed_weights(config.weight_decay, mask=mask)


def decays(params: Any, config: Decaying) -> Any:
    """Which parameters decay: a tree of bools. Matrices do, embeddings among them if ``config`` says so.

    A matrix has rank two or more as the model has it: stacked layers count as each one does.
    """

    def decays_one(path: Sequence[Any], array: Any) -> bool:
        return _is_matrix(path, array) and (config.decay_embeddings or not _is_embedding(path))

    return jax.tree.map_with_path(decays_one, params)


def decay_counts(params: Any, config: OptimizerConfig) -> str:
    """The line about weight decay that a training prints before its first step; ``params``: arrays, or their shapes.

    Says the same of stacked layers as of a list of them.
    """
    if not isinstance(config, Decaying):
        return f"weight decay is up to {config.transformation}"
    if not config.weight_decay:
        return "no weight decay"
    decayed = jax.tree.leaves(decays(params, config))
    counts = {"matrices": (0, 0), "embeddings": (0, 0), "vectors": (0, 0)}
    for (path, array), flag in zip(jax.tree.leaves_with_path(params), decayed, strict=True):
        kind = "matrices" if flag else "embeddings" if _is_matrix(path, array) else "vectors"
        arrays, numbers = counts[kind]
        counts[kind] = (arrays + (array.shape[0] if _is_stacked(path) else 1), numbers + array.size)
    spared = " and ".join(
        _counted(kind, counts[kind], sizes=kind != "vectors") for kind in ("embeddings", "vectors") if counts[kind][0]
    )
    told = f"weight decay {config.weight_decay:g} on {_counted('matrices', counts['matrices'], sizes=True)}"
    return f"{told}, not on {spared}" if spared else told


def transformation_of(config: OptimizerConfig) -> optax.GradientTransformation:
    """What the function that ``config`` names makes of it.

    Raises ``ConfigurationError`` if it can't be imported, is not there, or returns something else.
    """
    name, described = config.transformation, type(config).__name__
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute.isidentifier():
        raise ConfigurationError(
            f"{described}: its transformation {name!r} names no function: write 'my_project.my_rule:transformation'"
        )
    try:
        module: Any = importlib.import_module(module_name)
    except ImportError as fault:
        raise ConfigurationError(f"{described}: its transformation {name!r} can't be imported: {fault}") from fault
    if not callable(function := getattr(module, attribute, None)):
        raise ConfigurationError(
            f"{described}: its transformation {name!r}: {module_name} has no function {attribute!r}: correct the name, "
            "or define it there"
        )
    transformation: Any = function(config)
    if not callable(getattr(transformation, "init", None)) or not callable(getattr(transformation, "update", None)):
        raise ConfigurationError(
            f"{described}: its transformation {name!r} returned {type(transformation).__name__}: return an "
            "optax.GradientTransformation, such as optax.scale_by_adam(...)"
        )
    return transformation


def _counted(kind: str, count: tuple[int, int], *, sizes: bool) -> str:
    arrays, numbers = count
    one = {"matrices": "matrix", "embeddings": "embedding", "vectors": "vector"}[kind]
    return f"{arrays:,} {one if arrays == 1 else kind}{f' ({numbers:,} numbers)' if sizes else ''}"


def _is_matrix(path: Sequence[Any], array: Any) -> bool:
    return array.ndim - _is_stacked(path) >= 2


def _is_stacked(path: Sequence[Any]) -> bool:
    """Whether the array is of all layers at once: below ``layers`` there is no index."""
    return len(path) > 1 and _name(path[0]) == LAYERS and not isinstance(path[1], jax.tree_util.SequenceKey)


def _is_embedding(path: Sequence[Any]) -> bool:
    return any(_name(key).startswith(EMBEDDINGS) for key in path)


def _name(key: Any) -> str:
    """Of an entry of a dict, or of an attribute; an index has none."""
    return str(getattr(key, "key", getattr(key, "name", "")))
