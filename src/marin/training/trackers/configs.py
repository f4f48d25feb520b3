"""The trackers that come along. Each needs the extra of its name: ``pip install 'marin[wandb]'``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from marin.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class TensorboardConfig:
    """Event files for TensorBoard. Needs ``marin[tensorboard]``.

    ``directory=None`` puts them into the folder ``tensorboard`` beside the checkpoint: ``tensorboard --logdir`` can be
    given the whole store.
    """

    tracker: ClassVar[str] = "marin.training.trackers.tensorboard_sink:open_tracker"

    directory: str | None = None


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """A run of Weights & Biases. Needs ``marin[wandb]``.

    The key is taken from where wandb keeps it (``wandb login``, ``WANDB_API_KEY``) and written nowhere;
    ``WANDB_MODE=offline`` keeps the run in files, for ``wandb sync``. A resumed training goes on in the same run, whose
    id lies in ``wandb.json`` beside the metrics. ``run_name=None`` names it after the artifact.

    ``directory=None`` leaves wandb's own files where it puts them (``WANDB_DIR``, else ``./wandb``): they can't lie
    with the checkpoint, as there are links among them, and wandb's process may still write when the training is over.
    """

    tracker: ClassVar[str] = "marin.training.trackers.wandb_sink:open_tracker"

    project: str
    entity: str | None = None
    group: str | None = None
    run_name: str | None = None
    tags: tuple[str, ...] = ()
    directory: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.project, str) or not self.project.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"WandbConfig: project={self.project!r} is no name of a project")
        if not isinstance(self.tags, tuple) or not all(isinstance(tag, str) for tag in self.tags):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"WandbConfig: tags={self.tags!r} is no tuple of texts: write ('baseline',)")
