"""What the step function of a training is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from marin.execution.fingerprint import absent_means, execution_only
from marin.processing.mixture.mixture import MIXTURE_FORMULA, MixtureStage
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training import defaults
from marin.training.checkpoint import Checkpoint, ExportDtype, Packing, Precision
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.mesh_config import MeshConfig
from marin.training.models.model import ModelConfig
from marin.training.optimizers import OptimizerConfig
from marin.training.trackers.tracker import TrackerConfig

OnNonFinite: TypeAlias = Literal["stop", "skip"]


@dataclass(frozen=True, kw_only=True)
class DatasetConfig:
    """One component of the training data. Weights are relative to each other; 0 is not trained on, only validated.

    ``max_train_batches``: of its sequences only so many batches are used, a sample that the seed chooses. ``name`` is
    for messages.
    """

    fingerprint_name: ClassVar[str] = "marin.DatasetConfig"

    cache: TokenizedCache
    weight: float
    max_train_batches: int | None = field(default=None, metadata=absent_means(None))
    name: str = field(default="", compare=False, metadata=execution_only())


@dataclass(frozen=True, kw_only=True)
class TrainLmConfig:
    """What ``marin.training.trainer.train`` is asked to do.

    ``validation=None`` takes the validation splits of the data sets. Of steps and epochs exactly one is given, as of
    ``eval_every`` (steps) and ``evals_per_run``. ``stages`` are weights that replace those of ``datasets`` at later
    steps. ``init_from``: whose parameters it begins with; ``model=None``: whose model it is too. ``evals`` name
    functions, as ``marin.training.evals`` says. ``packing="segmented"``: tokens attend to those of their own document
    only. ``hf_export``: in which type the trained model is also written as Hugging Face's files, if it has such a form;
    ``None``: not. ``mesh``, ``grad_accumulation`` and ``remat`` say how it is computed; ``remat=None``: as suits the
    device.
    """

    fingerprint_name: ClassVar[str] = "marin.TrainLmConfig"

    output_path: str
    model: ModelConfig | None
    datasets: tuple[DatasetConfig, ...]
    validation: tuple[TokenizedCache, ...] | None
    optimizer: OptimizerConfig
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
    stages: tuple[MixtureStage, ...] = field(default=(), metadata=absent_means(()))
    validation_names: tuple[str, ...] = field(default=(), compare=False, metadata=execution_only())
    mask_boundaries: bool = field(default=False, metadata=absent_means(False))
    mixture_formula: int = field(default=MIXTURE_FORMULA, metadata=absent_means(1))
    init_from: Checkpoint | None = field(default=None, metadata=absent_means(None))
    evals: tuple[str, ...] = field(default=(), metadata=absent_means(()))
    packing: Packing = field(default=defaults.PACKING, metadata=absent_means("concatenated"))
    hf_export: ExportDtype | None = field(default=defaults.HF_EXPORT, metadata=absent_means("float32"))
    on_nonfinite: OnNonFinite = field(default=defaults.ON_NONFINITE, metadata=absent_means("stop"))
    max_skipped_steps: int = field(default=defaults.MAX_SKIPPED_STEPS, metadata=execution_only())
    mesh: MeshConfig | None = field(default=None, metadata=execution_only())
    grad_accumulation: int = field(default=defaults.GRAD_ACCUMULATION, metadata=execution_only())
    remat: bool | None = field(default=None, metadata=execution_only())
    trackers: tuple[TrackerConfig, ...] = field(default=(), metadata=execution_only())
    name: str = field(default="", metadata=execution_only())
    checkpoints: CheckpointPolicy = field(default=CheckpointPolicy(), metadata=execution_only())
