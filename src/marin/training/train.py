"""Describe the training of a language model. The work is in ``marin.training.trainer``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marin.errors import ConfigurationError
from marin.execution.context import StepContext
from marin.execution.lazy import ArtifactStep
from marin.execution.remote_function import remote
from marin.execution.version_codex import AMBIENT_VERSION
from marin.executors.resources import ResourceConfig
from marin.processing.mixture.mixture import (
    Mixture,
    TokenStep,
)
from marin.processing.scalars import plain_number
from marin.training import defaults
from marin.training.checkpoint import Checkpoint, Evaluation, ExportDtype, Packing, Precision
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.mesh_config import MeshConfig
from marin.training.models.model import ModelConfig
from marin.training.optimizers import AdamConfig, OptimizerConfig, filled_in
from marin.training.trackers.tracker import TrackerConfig, checked_trackers
from marin.training.train_checks import (
    check_choices,
    check_counts,
    check_pieces,
    check_types,
    checked_mixture,
    checked_seq_len,
    is_positive,
    unique,
    validation_steps_of,
)
from marin.training.train_config import DatasetConfig, OnNonFinite, TrainLmConfig

__all__ = ["Checkpoint", "DatasetConfig", "Evaluation", "TrainLmConfig", "train_lm"]


def train_lm(
    *,
    name: str,
    model: ModelConfig | None = None,
    datasets: Mixture | Mapping[TokenStep, float] | TokenStep | None = None,
    optimizer: OptimizerConfig | None = None,
    batch_size: int | None = None,
    seq_len: int | None = None,
    num_train_steps: int | None = None,
    num_train_epochs: int | float | None = None,
    version: str = AMBIENT_VERSION,
    validation: Sequence[TokenStep] | TokenStep | None = None,
    eval_every: int | None = None,
    init_from: ArtifactStep[Checkpoint] | None = None,
    evals: Sequence[str] = (),
    seed: int = defaults.SEED,
    z_loss: float = defaults.Z_LOSS,
    precision: Precision = defaults.PRECISION,
    packing: Packing = defaults.PACKING,
    mesh: MeshConfig | str | None = None,
    grad_accumulation: int = defaults.GRAD_ACCUMULATION,
    remat: bool | None = None,
    hf_export: ExportDtype | None = defaults.HF_EXPORT,
    on_nonfinite: OnNonFinite = defaults.ON_NONFINITE,
    max_skipped_steps: int = defaults.MAX_SKIPPED_STEPS,
    checkpoints: CheckpointPolicy | None = None,
    trackers: Sequence[TrackerConfig] = (),
    resources: ResourceConfig | str = "cpu",
) -> ArtifactStep[Checkpoint]:
    """A language model trained on ``datasets``: a handle, nothing is trained yet.

    ``datasets`` maps token caches to relative weights, or is one cache, or a ``mixture(...)``, whose weights may change
    on the way. What is left out comes from ``marin.training.defaults``; the length defaults to one epoch: as many
    sequences as the data sets hold together.
    ``validation`` are caches to validate on (their validation split, or all of one that has none); left out, the
    validation splits of the data sets. ``evals`` are functions of your own that are asked whenever it validates, as
    ``marin.training.evals`` says, such as ``["my_project.evals:accuracy"]``.
    ``init_from`` is a checkpoint whose parameters it begins with; ``model`` can be left out then.

    ``packing``: windows are cut from the documents laid end to end. ``"concatenated"`` lets a token attend to all that
    come before it in its window, ``"segmented"`` to those of its own document only.
    ``hf_export``: the trained model is also written as Hugging Face's files, in this type (``checkpoint.hf_dir``);
    ``None``: not, and ``marin export`` does it later. A model of your own has no such form.
    ``on_nonfinite``: ``"stop"`` at the first loss or gradient that is infinite or not a number, or ``"skip"`` that
    update, up to ``max_skipped_steps`` times.

    Where and how it runs is not identity: ``resources``; ``mesh``, how several devices share the work (left out: the
    parameters are cut over all of them); ``grad_accumulation``, in how many pieces a batch is computed to save memory;
    ``remat``, whether the inner values of layers are computed twice to save memory (left out: on accelerators);
    ``checkpoints``, when the state is saved and how many are kept; ``trackers``, where metrics go beside the file
    ``metrics.jsonl``.

    Raises ``ConfigurationError`` for values that can't be trained with. Without ``datasets`` the handle can be made,
    but neither planned nor run.

    >>> from marin.processing.tokenize.tokenize import TokenizedCache
    >>> from marin.training.models.llama_config import LlamaConfig
    >>> small = LlamaConfig(hidden_dim=32, intermediate_dim=128, num_layers=2, num_heads=2, max_seq_len=2048)
    >>> tokens = ArtifactStep(name="tokenized/poems", artifact_type=TokenizedCache, run="my_project.poems:tokenize")
    >>> train_lm(name="checkpoints/poet", model=small, datasets={tokens: 1.0}, optimizer=AdamConfig(lr=6e-4))
    ArtifactStep[Checkpoint](checkpoints/poet@dev)
    """
    batch_size, seq_len, eval_every = plain_number(batch_size), plain_number(seq_len), plain_number(eval_every)
    num_train_steps, num_train_epochs = plain_number(num_train_steps), plain_number(num_train_epochs)
    grad_accumulation, max_skipped_steps = plain_number(grad_accumulation), plain_number(max_skipped_steps)
    seed, z_loss = plain_number(seed), plain_number(z_loss)
    mixture = checked_mixture(name, datasets)
    validation_steps = validation_steps_of(name, validation)
    check_counts(
        name,
        batch_size=batch_size,
        seq_len=seq_len,
        num_train_steps=num_train_steps,
        eval_every=eval_every,
        grad_accumulation=grad_accumulation,
        max_skipped_steps=max_skipped_steps,
    )
    if num_train_steps is not None and num_train_epochs is not None:
        raise ConfigurationError(
            f"train_lm({name!r}): num_train_steps={num_train_steps} and num_train_epochs={num_train_epochs} both set "
            "the length of the training: give one of them"
        )
    if num_train_epochs is not None and not is_positive(num_train_epochs):
        raise ConfigurationError(f"train_lm({name!r}): num_train_epochs={num_train_epochs!r} is not a positive number")
    if num_train_steps is None and num_train_epochs is None:
        num_train_epochs = defaults.NUM_TRAIN_EPOCHS
    named_evals = tuple(evals) if isinstance(evals, list | tuple) else evals
    check_types(name, model=model, optimizer=optimizer, checkpoints=checkpoints, init_from=init_from, evals=named_evals)
    check_choices(
        name,
        seed=seed,
        z_loss=z_loss,
        precision=precision,
        packing=packing,
        on_nonfinite=on_nonfinite,
        hf_export=hf_export,
        remat=remat,
    )
    seq_len = checked_seq_len(name, seq_len, model)
    tracked = checked_trackers(f"train_lm({name!r})", trackers)
    parsed, parsed_mesh = ResourceConfig.parse(resources), None if mesh is None else MeshConfig.parse(mesh)
    check_pieces(name, batch_size or defaults.BATCH_SIZE, grad_accumulation, parsed_mesh, parsed)

    def build_config(ctx: StepContext) -> TrainLmConfig:
        if mixture is None:
            raise ConfigurationError(
                f"train_lm({name!r}) has no datasets: it can be neither planned nor run. "
                "Give datasets={tokens: 1.0}, where tokens = tokenized(...)"
            )
        return TrainLmConfig(
            output_path=ctx.output_path,
            model=model,
            datasets=tuple(
                DatasetConfig(cache=ctx.resolved(step), weight=weight, max_train_batches=limit, name=str(step.id))
                for step, weight, limit in zip(
                    mixture.components, mixture.stages[0].weights, mixture.max_train_batches, strict=True
                )
            ),
            stages=mixture.stages[1:],
            mask_boundaries=mixture.mask_boundaries,
            validation=None if validation_steps is None else tuple(ctx.resolved(step) for step in validation_steps),
            validation_names=tuple(str(step.id) for step in validation_steps or ()),
            optimizer=filled_in(AdamConfig(lr=defaults.LEARNING_RATE) if optimizer is None else optimizer),
            batch_size=defaults.BATCH_SIZE if batch_size is None else batch_size,
            seq_len=seq_len,
            num_train_steps=num_train_steps,
            num_train_epochs=num_train_epochs,
            eval_every=eval_every,
            evals_per_run=defaults.EVALS_PER_RUN if eval_every is None else None,
            seed=seed,
            z_loss=float(z_loss),
            precision=precision,
            init_from=None if init_from is None else ctx.resolved(init_from),
            evals=tuple(named_evals),
            packing=packing,
            hf_export=hf_export,
            on_nonfinite=on_nonfinite,
            max_skipped_steps=max_skipped_steps,
            mesh=parsed_mesh,
            grad_accumulation=grad_accumulation,
            remat=remat,
            checkpoints=CheckpointPolicy() if checkpoints is None else checkpoints,
            trackers=tracked,
            name=name,
            device=ctx.runtime_arg("device"),
        )

    return ArtifactStep(
        name=name,
        version=version,
        run=remote(
            "marin.training.trainer:train",
            resources=parsed,
            resumable="any_recipe",
            grace=defaults.STOP_SECONDS,
            env=defaults.ENVIRONMENT,
            all_hosts=True,
        ),
        artifact_type=Checkpoint,
        build_config=build_config,
        deps=unique(*(mixture.components if mixture else ()), *(validation_steps or ()), init_from),
        runtime_args={"device": str(parsed.device)},
    )
