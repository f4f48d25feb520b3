"""A model, described. What it computes is in the module that the description names."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from marin.errors import ConfigurationError


@runtime_checkable
class ModelConfig(Protocol):
    """A frozen dataclass of sizes and choices. The vocabulary is no part of it: it comes with the tokens.

    ``implementation`` names the module that has ``init``, ``hidden_states`` and ``head``, such as
    ``"my_project.my_model"``; the process of the training imports it, so that a script which describes the training
    loads no heavy library.
    """

    implementation: ClassVar[str]

    @property
    def max_seq_len(self) -> int:
        """The longest sequence that it takes, in tokens."""
        ...

    def num_params(self, vocab_size: int) -> int:
        """Exact number of parameters; a matrix that is used twice counts once."""
        ...

    def flops_per_token(self, vocab_size: int, seq_len: int) -> float:
        """Floating-point operations of one training step per token: matrix products only, forward and backward."""
        ...


def is_model_config(value: object) -> bool:
    """Whether ``value`` can be trained, as far as can be told without importing its implementation."""
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and isinstance(getattr(type(value), "implementation", None), str)
        and isinstance(value, ModelConfig)
    )


def model_class(config: ModelConfig) -> str:
    """Where the class of ``config`` is found: ``"module:name"``."""
    return f"{type(config).__module__}:{type(config).__qualname__}"


def restored_model(name: str, fields: Mapping[str, Any]) -> ModelConfig:
    """The config of the class called ``name`` whose fields, as JSON has them, are ``fields``.

    Raises ``ConfigurationError`` if there is no such class, or if it does not take them.
    """
    module, _, qualified = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
        return msgspec.convert(dict(fields), found)
    except (ImportError, AttributeError, msgspec.ValidationError, TypeError) as fault:
        raise ConfigurationError(
            f"the model's class {name} can't be had as it was when it was trained: {fault}. "
            "Make its module importable, with the fields that it had"
        ) from fault
