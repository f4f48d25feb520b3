"""From the description of a model to its functions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import jax

from marin.errors import ConfigurationError
from marin.training.models.compute import Compute
from marin.training.models.inputs import Inputs
from marin.training.models.model import ModelConfig

Array = jax.Array

Params: TypeAlias = dict[str, Any]
"""Arrays by name, nested; ``params["layers"]``, if there is one, is a list of equal trees."""


class Model(Protocol):
    """The functions of a model: a module has them. They are pure, and ``init`` gives the same bits on any mesh.

    ``PARTITION``, which a module may leave out, tells how parameters can be cut over devices: from the end of a
    parameter's dotted name to one logical axis per dimension: ``"embed"``, ``"heads"``, ``"mlp"``, ``"vocab"`` or None.
    """

    PARTITION: Mapping[str, tuple[str | None, ...]]

    def init(self, key: Array, config: Any, vocab_size: int) -> Params:
        """New float32 parameters."""
        ...

    def hidden_states(self, params: Params, inputs: Inputs, config: Any, compute: Compute) -> Array:
        """What the head turns into logits, float32: ``[batch, seq] -> [batch, seq, hidden]``."""
        ...

    def head(self, params: Params) -> Array:
        """The matrix from hidden states to logits, ``[hidden, vocab]``."""
        ...


def implementation_of(config: ModelConfig) -> Model:
    """The module with the functions of ``config``. Raises ``ConfigurationError`` if it can't be had or lacks one."""
    name, described = config.implementation, type(config).__name__
    try:
        module: Any = importlib.import_module(name)
    except ImportError as fault:
        raise ConfigurationError(f"{described}: its implementation {name!r} can't be imported: {fault}") from fault
    lacking = [function for function in ("init", "hidden_states", "head") if not callable(getattr(module, function, 0))]
    if lacking:
        raise ConfigurationError(
            f"{described}: its implementation {name!r} has no function {', '.join(lacking)}: a model is made of "
            "init(key, config, vocab_size), hidden_states(params, inputs, config, compute) and head(params)"
        )
    return module


def partition_of(model: Model) -> Mapping[str, tuple[str | None, ...]]:
    """``PARTITION``, or nothing."""
    return getattr(model, "PARTITION", {})
