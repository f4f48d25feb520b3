"""Describe the training of a language model. The work is in ``marin.training.trainer``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, get_args

from marin.errors import ConfigurationError
from marin.execution.context import StepContext
from marin.execution.fingerprint import execution_only
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.version_codex import AMBIENT_VERSION
from marin.executors.resources import ResourceConfig
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training import defaults
from marin.training.checkpoint import Checkpoint, Evaluation, Precision
from marin.training.models.llama_config import LlamaConfig
from marin.training.optimizers import AdamConfig

__all__ = ["Checkpoint", "DatasetConfig", "Evaluation", "TrainLmConfig", "train_lm"]

TokenStep: TypeAlias = ArtifactStep[TokenizedCache]


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """One component of the training data. Weights are relative to each other; 0 is not trained on, only validated."""

    fingerprint_name: ClassVar[str] = "marin.DatasetConfig"

    cache: TokenizedCache
    weight: float


@dataclass(frozen=True, kw_only=True)
class TrainLmConfig:
    """What ``marin.training.trainer.train`` is asked to do.

    ``validation=None`` takes the validation splits of the data sets. Of steps and epochs exactly one is given, as of
    ``eval_every`` (steps) and ``evals_per_run``.
    """

    fingerprint_name: ClassVar[str] = "marin.TrainLmConfig"

    output_path: str
    model: LlamaConfig
    datasets: tuple[DatasetConfig, ...]
    validation: tuple[TokenizedCache, ...] | None
    optimizer: AdamConfig
    batch_size: int
    seq_len: int
    num_train_steps: int | None
    num_train_epochs: int | float | None
    eval_every: int | None
    evals_per_run: int | None
    seed: int
    z_loss: float
    precision: Precision
    device: str
    checkpoint_seconds: float = field(default=defaults.CHECKPOINT_SECONDS, metadata=execution_only())


def train_lm(
    *,
    name: str,
    model: LlamaConfig,
    datasets: Mapping[TokenStep, float] | TokenStep | None = None,
    optimizer: AdamConfig | None = None,
    batch_size: int | None = None,
    seq_len: int | None = None,
    num_train_steps: int | None = None,
    num_train_epochs: int | float | None = None,
    version: str = AMBIENT_VERSION,
    validation: Sequence[TokenStep] | TokenStep | None = None,
    eval_every: int | None = None,
    seed: int = defaults.SEED,
    z_loss: float = defaults.Z_LOSS,
    precision: Precision = defaults.PRECISION,
    resources: ResourceConfig | str = "cpu",
) -> ArtifactStep[Checkpoint]:
    """A language model trained on ``datasets``: a handle, nothing is trained yet.

    ``datasets`` maps token caches to relative weights, or is one cache. What is left out comes from
    ``marin.training.defaults``; the length defaults to one epoch: as many sequences as the data sets hold together.
    ``validation`` are caches to validate on (their validation split, or all of one that has none); left out, the
    validation splits of the data sets. ``resources`` say where it runs and are not identity.

    Raises ``ConfigurationError`` for values that can't be trained with. Without ``datasets`` the handle can be made,
    but neither planned nor run.

    >>> small = LlamaConfig(hidden_dim=32, intermediate_dim=128, num_layers=2, num_heads=2, max_seq_len=2048)
    >>> tokens = ArtifactStep(name="tokenized/poems", artifact_type=TokenizedCache, run="my_project.poems:tokenize")
    >>> train_lm(name="checkpoints/poet", model=small, datasets={tokens: 1.0}, optimizer=AdamConfig(lr=6e-4))
    ArtifactStep[Checkpoint](checkpoints/poet@dev)
    """
    weights = _checked_weights(name, datasets)
    validation_steps = _validation_steps(name, validation)
    _check_counts(name, batch_size=batch_size, seq_len=seq_len, num_train_steps=num_train_steps, eval_every=eval_every)
    if num_train_steps is not None and num_train_epochs is not None:
        raise ConfigurationError(
            f"train_lm({name!r}): num_train_steps={num_train_steps} and num_train_epochs={num_train_epochs} both set "
            "the length of the training: give one of them"
        )
    if num_train_epochs is not None and not _positive(num_train_epochs):
        raise ConfigurationError(f"train_lm({name!r}): num_train_epochs={num_train_epochs!r} is not a positive number")
    if num_train_steps is None and num_train_epochs is None:
        num_train_epochs = defaults.NUM_TRAIN_EPOCHS
    _check_types(name, model=model, optimizer=optimizer)
    _check_choices(name, seed=seed, z_loss=z_loss, precision=precision)
    seq_len = _checked_seq_len(name, seq_len, model)
    parsed = ResourceConfig.parse(resources)

    def build_config(ctx: StepContext) -> TrainLmConfig:
        if not weights:
            raise ConfigurationError(
                f"train_lm({name!r}) has no datasets: it can be neither planned nor run. "
                "Give datasets={tokens: 1.0}, where tokens = tokenized(...)"
            )
        return TrainLmConfig(
            output_path=ctx.output_path,
            model=model,
            datasets=tuple(DatasetConfig(cache=ctx.resolved(step), weight=weight) for step, weight in weights),
            validation=None if validation_steps is None else tuple(ctx.resolved(step) for step in validation_steps),
            optimizer=AdamConfig(lr=defaults.LEARNING_RATE) if optimizer is None else optimizer,
            batch_size=defaults.BATCH_SIZE if batch_size is None else batch_size,
            seq_len=seq_len,
            num_train_steps=num_train_steps,
            num_train_epochs=num_train_epochs,
            eval_every=eval_every,
            evals_per_run=defaults.EVALS_PER_RUN if eval_every is None else None,
            seed=seed,
            z_loss=float(z_loss),
            precision=precision,
            device=ctx.runtime_arg("device"),
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote("marin.training.trainer:train", resources=parsed, resumable=True),
        artifact_type=Checkpoint,
        build_config=build_config,
        deps=_unique([*(step for step, _ in weights), *(validation_steps or ())]),
        runtime_args={"device": str(parsed.device)},
    )


def _checked_weights(name: str, datasets: object) -> tuple[tuple[TokenStep, float], ...]:
    if datasets is None:
        return ()
    if isinstance(datasets, ArtifactStep):
        datasets = {datasets: 1.0}
    if not isinstance(datasets, Mapping):
        raise ConfigurationError(
            f"train_lm({name!r}): datasets is {type(datasets).__name__}: give a token cache, or a mapping of token "
            "caches to weights, {tokens: 1.0}"
        )
    weights = tuple(
        (_checked_cache(name, "datasets", step), _checked_weight(name, step, w)) for step, w in datasets.items()
    )
    if not weights or not sum(weight for _, weight in weights) > 0:
        raise ConfigurationError(
            f"train_lm({name!r}): the weights of datasets sum to 0: give at least one a positive weight"
        )
    return weights


def _checked_weight(name: str, step: object, weight: object) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
        raise ConfigurationError(
            f"train_lm({name!r}): the weight of {step!r} is {weight!r}: a weight is a finite number, zero or more"
        )
    return float(weight)


def _validation_steps(name: str, validation: object) -> tuple[TokenStep, ...] | None:
    if validation is None:
        return None
    steps: Any = (validation,) if isinstance(validation, ArtifactStep) else validation
    if not isinstance(steps, Iterable):
        raise ConfigurationError(
            f"train_lm({name!r}): validation is {type(validation).__name__}: give a token cache, or a list of them"
        )
    return tuple(_checked_cache(name, "validation", step) for step in steps)


def _checked_cache(name: str, key: str, step: object) -> TokenStep:
    if isinstance(step, ArtifactStep) and issubclass(step.artifact_type, TokenizedCache):
        return step
    what = repr(step) if isinstance(step, ArtifactStep) else f"{type(step).__name__} {step!r}"
    raise ConfigurationError(
        f"train_lm({name!r}): {key} has {what}, which is no token cache: give a tokenized(...) handle"
    )


def _check_counts(name: str, **counts: int | None) -> None:
    for key, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"train_lm({name!r}): {key}={value!r} is not a positive whole number")


def _check_types(name: str, *, model: object, optimizer: object) -> None:
    if not isinstance(model, LlamaConfig):
        raise ConfigurationError(
            f"train_lm({name!r}): model={model!r} is no model: write LlamaConfig(...) or take one of "
            "marin.experiment.models"
        )
    if optimizer is not None and not isinstance(optimizer, AdamConfig):
        raise ConfigurationError(
            f"train_lm({name!r}): optimizer={optimizer!r} is no optimizer: write AdamConfig(lr=...)"
        )


def _check_choices(name: str, *, seed: int, z_loss: float, precision: str) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"train_lm({name!r}): seed={seed!r} is not a whole number from 0 to 2**32 - 1")
    if not (z_loss == 0 or _positive(z_loss)):
        raise ConfigurationError(f"train_lm({name!r}): z_loss={z_loss!r} is not a finite number, zero or more")
    if precision not in get_args(Precision):
        raise ConfigurationError(
            f"train_lm({name!r}): precision={precision!r} is not one of {', '.join(get_args(Precision))}"
        )


def _checked_seq_len(name: str, seq_len: int | None, model: LlamaConfig) -> int:
    if seq_len is None:
        return min(model.max_seq_len, defaults.SEQ_LEN)
    if seq_len > model.max_seq_len:
        raise ConfigurationError(
            f"train_lm({name!r}): seq_len={seq_len} is longer than the model takes (max_seq_len={model.max_seq_len}): "
            "shorten seq_len, or use replace(model, max_seq_len=...)"
        )
    return seq_len


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _unique(steps: Sequence[TokenStep]) -> tuple[TokenStep, ...]:
    return tuple(dict.fromkeys(steps))
