"""What is wrong with the arguments of ``train_lm``, told when the handle is made: all raise ``ConfigurationError``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

from marin.errors import ConfigurationError
from marin.execution.lazy import ArtifactStep
from marin.executors.resources import ResourceConfig
from marin.processing.mixture.mixture import Mixture, MixtureStage, TokenStep, checked_cache, checked_weights
from marin.processing.scalars import finite_number
from marin.training import defaults
from marin.training.checkpoint import Checkpoint, ExportDtype, Packing, Precision
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.mesh_config import MeshConfig
from marin.training.models.model import ModelConfig, is_model_config
from marin.training.optimizers import is_optimizer_config
from marin.training.train_config import OnNonFinite

_FUNCTION = re.compile(r"[\w.]+:\w+")


def checked_mixture(name: str, datasets: object) -> Mixture | None:
    """``datasets`` as a mixture."""
    if datasets is None or isinstance(datasets, Mixture):
        return datasets
    weights = checked_weights(
        f"train_lm({name!r})", {datasets: 1.0} if isinstance(datasets, ArtifactStep) else datasets
    )
    return Mixture(
        components=tuple(weights),
        stages=(MixtureStage(start_step=0, weights=tuple(weights.values())),),
        max_train_batches=(None,) * len(weights),
        mask_boundaries=False,
    )


def validation_steps_of(name: str, validation: object) -> tuple[TokenStep, ...] | None:
    """``validation`` as a tuple."""
    if validation is None:
        return None
    steps: Any = (validation,) if isinstance(validation, ArtifactStep) else validation
    if not isinstance(steps, Iterable) or isinstance(steps, str):
        raise ConfigurationError(
            f"train_lm({name!r}): validation is {type(validation).__name__}: give a token cache, or a list of them"
        )
    return tuple(checked_cache(f"train_lm({name!r})", "validation", step) for step in steps)


def check_counts(name: str, **counts: int | None) -> None:
    """Each is a positive whole number, or left out."""
    for key, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"train_lm({name!r}): {key}={value!r} is not a positive whole number")


def check_types(
    name: str, *, model: object, optimizer: object, checkpoints: object, init_from: object, evals: object
) -> None:
    """Each describes what it is called."""
    kind = init_from.artifact_type if isinstance(init_from, ArtifactStep) else None
    if init_from is not None and not (isinstance(kind, type) and issubclass(kind, Checkpoint)):
        raise ConfigurationError(
            f"train_lm({name!r}): init_from={init_from!r} is no checkpoint: give a handle that train_lm or hf_model "
            "has made"
        )
    if not isinstance(evals, tuple) or not all(isinstance(each, str) and _FUNCTION.fullmatch(each) for each in evals):
        raise ConfigurationError(
            f"train_lm({name!r}): evals={evals!r}: give the names of functions, such as ['my_project.evals:accuracy']"
        )
    if model is None and init_from is None:
        raise ConfigurationError(
            f"train_lm({name!r}): model=None: write LlamaConfig(...) or take one of marin.experiment.models; only with "
            "init_from= it can be left out"
        )
    if checkpoints is not None and not isinstance(checkpoints, CheckpointPolicy):
        raise ConfigurationError(
            f"train_lm({name!r}): checkpoints={checkpoints!r} is no policy: write CheckpointPolicy(seconds=600, keep=2)"
        )
    if model is not None and not is_model_config(model):
        raise ConfigurationError(
            f"train_lm({name!r}): model={model!r} is no model: write LlamaConfig(...), take one of "
            "marin.experiment.models, or see marin.training.models.model for a model of your own"
        )
    if optimizer is not None and not is_optimizer_config(optimizer):
        raise ConfigurationError(
            f"train_lm({name!r}): optimizer={optimizer!r} is no optimizer: write AdamConfig(lr=...), or a class of "
            "your own as marin.training.optimizers.OptimizerConfig says"
        )


def check_choices(name: str, *, seed: int, z_loss: float, hf_export: object, remat: object, **choices: str) -> None:
    """Numbers in their range, words among those that there are."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"train_lm({name!r}): seed={seed!r} is not a whole number from 0 to 2**32 - 1")
    if not (z_loss == 0 or is_positive(z_loss)):
        raise ConfigurationError(f"train_lm({name!r}): z_loss={z_loss!r} is not a finite number, zero or more")
    if remat is not None and not isinstance(remat, bool):
        raise ConfigurationError(f"train_lm({name!r}): remat={remat!r} is neither True nor False, nor None")
    if hf_export is not None and hf_export not in get_args(ExportDtype):
        raise ConfigurationError(
            f"train_lm({name!r}): hf_export={hf_export!r} is not one of {', '.join(get_args(ExportDtype))}, or None"
        )
    for key, kind in (("precision", Precision), ("packing", Packing), ("on_nonfinite", OnNonFinite)):
        if choices[key] not in get_args(kind):
            raise ConfigurationError(
                f"train_lm({name!r}): {key}={choices[key]!r} is not one of {', '.join(get_args(kind))}"
            )


def check_pieces(
    name: str, batch_size: int, grad_accumulation: int, mesh: MeshConfig | None, resources: ResourceConfig
) -> None:
    """What can be told before the devices are known; the rest is told before step 0."""
    if batch_size % grad_accumulation:
        raise ConfigurationError(
            f"train_lm({name!r}): batch_size={batch_size} can't be cut into grad_accumulation={grad_accumulation} "
            "equal pieces: choose a divisor"
        )
    if mesh and resources.gpus:
        mesh.sizes(resources.gpus)
    if mesh and mesh.num_devices and batch_size % (parts := mesh.data * mesh.fsdp * grad_accumulation):
        raise ConfigurationError(
            f"train_lm({name!r}): batch_size={batch_size} can't be cut evenly over data={mesh.data} x "
            f"fsdp={mesh.fsdp} devices in grad_accumulation={grad_accumulation} pieces: choose a multiple of {parts}"
        )


def checked_seq_len(name: str, seq_len: int | None, model: ModelConfig | None) -> int:
    """The default filled in, and not longer than the model takes, if that is known."""
    if model is None:
        return defaults.SEQ_LEN if seq_len is None else seq_len
    if seq_len is None:
        return min(model.max_seq_len, defaults.SEQ_LEN)
    if seq_len > model.max_seq_len:
        raise ConfigurationError(
            f"train_lm({name!r}): seq_len={seq_len} is longer than the model takes (max_seq_len={model.max_seq_len}): "
            "shorten seq_len, or use replace(model, max_seq_len=...)"
        )
    return seq_len


def is_positive(value: object) -> bool:
    """Whether it is a finite number above zero."""
    number = finite_number(value)
    return number is not None and number > 0


def unique(*steps: ArtifactStep[Any] | None) -> tuple[ArtifactStep[Any], ...]:
    """Each step once."""
    return tuple(dict.fromkeys(step for step in steps if step is not None))
