"""Everything that can be wrong with a training, found before step 0 and told in one error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from marin.errors import ConfigurationError, DataError, TokenizerMismatchError
from marin.processing.mixture.batches import Component, TrainingData, share_faults, size_faults, used_components
from marin.processing.mixture.budget import budget_text
from marin.processing.mixture.faults import Faults
from marin.processing.mixture.mixture import MIXTURE_FORMULA, MixtureStage
from marin.processing.mixture.schedule import check_stages
from marin.processing.tokenize.manifest import TRAIN
from marin.processing.tokenize.open_stream import OpenSplit, open_split
from marin.training import defaults
from marin.training.evals import EvalFunction, eval_functions
from marin.training.models.model import ModelConfig
from marin.training.overlap import check_overlap
from marin.training.trackers.running import check_trackers
from marin.training.train_config import DatasetConfig, TrainLmConfig
from marin.training.validation_splits import component_name, validation_splits

CHECKED_TOKENS = 100_000_000
"""So many tokens of each split are looked at before step 0 for ids that the vocabulary lacks; JAX would clamp them."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data of a training and what follows from it, checked."""

    model: ModelConfig
    data: TrainingData
    validation: dict[str, OpenSplit]
    """By the name of the component."""
    evals: dict[str, EvalFunction]
    vocab_size: int
    num_steps: int
    eval_every: int

    @property
    def budget(self) -> str:
        """What each component will give, to be printed before step 0."""
        return budget_text(
            self.data.budget(self.num_steps), stage_steps=[stage.start_step for stage in self.data.stages]
        )


def prepare(config: TrainLmConfig) -> Prepared:
    """Open the data, and check all that can be checked before step 0."""
    check_trackers(config.trackers)
    stages = _stages(config)
    used = used_components(stages)
    faults = Faults()
    components = [_opened(dataset, faults) for dataset in config.datasets]
    _check_kinds(config, components, used, faults)
    _check_tokenizers(config, faults)
    _check_shares(config, stages, components, faults)
    validation = validation_splits(config, components, used, faults)
    trained_on = [component.stream for number in used if (component := components[number])]
    check_overlap(trained_on, list(validation.values()), faults)
    model, vocab_size = _model(config, faults)
    for reader in (*(component.stream for component in components if component), *validation.values()):
        _check_ids(reader, vocab_size, faults)
    faults.raise_all("the data of the training")
    data = TrainingData(
        [component for component in components if component],
        stages,
        seq_len=config.seq_len,
        batch_size=config.batch_size,
        seed=config.seed,
        mask_boundaries=config.mask_boundaries,
        segments=config.packing == "segmented",
    )
    num_steps = _num_steps(config, data)
    _check_reached(config, data, num_steps)
    return Prepared(
        model=model,
        evals=eval_functions(config.evals),
        data=data,
        validation=validation,
        vocab_size=vocab_size,
        num_steps=num_steps,
        eval_every=config.eval_every or -(-num_steps // (config.evals_per_run or 1)),
    )


def _stages(config: TrainLmConfig) -> tuple[MixtureStage, ...]:
    if config.mixture_formula != MIXTURE_FORMULA:
        raise ConfigurationError(
            f"the config asks for mixture formula {config.mixture_formula}, this Marin has {MIXTURE_FORMULA}: "
            "its batches would be others; train with a Marin that has it, or under a new version"
        )
    stages = (MixtureStage(start_step=0, weights=tuple(each.weight for each in config.datasets)), *config.stages)
    check_stages(stages, components=len(config.datasets))
    return stages


def _opened(dataset: DatasetConfig, faults: Faults) -> Component[OpenSplit] | None:
    """One component, looked at in full; ``None`` if it can't be read."""
    with faults.collected():
        dataset.cache.verify()
        return Component(
            name=component_name(dataset),
            stream=open_split(dataset.cache, TRAIN),
            max_train_batches=dataset.max_train_batches,
        )
    return None


def _model(config: TrainLmConfig, faults: Faults) -> tuple[ModelConfig, int]:
    """The model, and its vocabulary: that of the tokens, or of the checkpoint that it begins with."""
    vocab_size, start = config.datasets[0].cache.vocab_size, config.init_from
    model = config.model or (start.config if start else None)
    assert model is not None, "train_lm sees to it that there is one"
    if config.seq_len > model.max_seq_len:
        faults.add(
            ConfigurationError(
                f"seq_len={config.seq_len} is longer than the model of init_from takes (max_seq_len="
                f"{model.max_seq_len}): lower seq_len"
            )
        )
    if start is None:
        return model, vocab_size
    start.verify()
    if start.vocab_size < vocab_size:  # some files have rows for more ids than their tokenizer knows
        faults.add(
            ConfigurationError(
                f"the tokens have a vocabulary of {vocab_size:,}, but the model of init_from, {start.path}, has "
                f"{start.vocab_size:,}: tokenize with the tokenizer of that model"
            )
        )
    return model, start.vocab_size


def _check_kinds(
    config: TrainLmConfig, components: Sequence[Component[OpenSplit] | None], used: Sequence[int], faults: Faults
) -> None:
    for number in used:
        cache, name = config.datasets[number].cache, component_name(config.datasets[number])
        if cache.document_format == "preference":
            faults.add(
                ConfigurationError(
                    f"{name} holds pairs of a chosen and a rejected text, and next-token "
                    "training would learn both alike: train on a cache of texts or chats"
                )
            )
        if components[number] is not None and cache.splits[TRAIN].learned_tokens == 0:
            faults.add(
                DataError(
                    f"the loss mask of {name} leaves nothing to learn: tokenize it again "
                    "with a mask that marks what the model is to learn, or leave it out"
                )
            )


def _check_reached(config: TrainLmConfig, data: TrainingData, num_steps: int) -> None:
    """Weights that nobody meant to be without effect."""
    faults = Faults()
    if late := [stage.start_step for stage in config.stages if stage.start_step >= num_steps]:
        faults.add(
            ConfigurationError(
                f"the training has {num_steps:,} steps, but weights of the mixture begin at step "
                f"{', '.join(f'{step:,}' for step in late)}: train longer, or let them begin earlier"
            )
        )
    if silent := [row.name for row in data.budget(num_steps) if not row.sequences]:
        faults.add(
            ConfigurationError(
                f"in {num_steps:,} steps of {config.batch_size} sequences {', '.join(silent)} gives none: train "
                "longer, raise its weight, or leave it out"
            )
        )
    faults.raise_all("the length of the training")


def _check_tokenizers(config: TrainLmConfig, faults: Faults) -> None:
    first, *others = [*(dataset.cache for dataset in config.datasets), *(config.validation or ())]
    start = config.init_from
    # The ids of text must be the same; which of them ends a document is the cache's to say.
    if start and start.tokenizer.probe_sha256 != first.tokenizer.probe_sha256:
        faults.add(
            TokenizerMismatchError(
                f"{first.path} was made by tokenizer {first.tokenizer.location}, but the model of init_from, "
                f"{start.path}, was trained with {start.tokenizer.location}: tokenize the text with that one"
            )
        )
    for cache in others:
        if not cache.tokenizer.agrees_with(first.tokenizer):
            faults.add(
                TokenizerMismatchError(
                    f"{cache.path} was made by tokenizer {cache.tokenizer.location}, but {first.path} by "
                    f"{first.tokenizer.location}: one model needs one tokenizer"
                )
            )


def _check_shares(
    config: TrainLmConfig,
    stages: Sequence[MixtureStage],
    components: Sequence[Component[OpenSplit] | None],
    faults: Faults,
) -> None:
    for fault in share_faults([component_name(dataset) for dataset in config.datasets], stages):
        faults.add(fault)
    for number in used_components(stages):
        if (component := components[number]) is not None:
            for fault in size_faults(component, seq_len=config.seq_len):
                faults.add(fault)


def _check_ids(reader: OpenSplit, vocab_size: int, faults: Faults) -> None:
    piece = 1 << 22
    for start in range(0, min(reader.num_tokens, CHECKED_TOKENS), piece):
        largest = int(np.max(reader.tokens(start, min(piece, reader.num_tokens - start))))
        if largest >= vocab_size:
            faults.add(
                DataError(
                    f"the {reader.split} split of {reader.path} holds token id {largest}, but the vocabulary has "
                    f"{vocab_size} tokens: tokenize it again"
                )
            )
            return


def _num_steps(config: TrainLmConfig, data: TrainingData) -> int:
    if config.num_train_steps is not None:
        return config.num_train_steps
    epochs = config.num_train_epochs or defaults.NUM_TRAIN_EPOCHS
    # As the author wrote it: 0.29 of 100 windows are 29, not the 28.99... of binary fractions.
    steps = math.floor(Fraction(str(epochs)) * data.num_windows / config.batch_size)
    if not steps:
        raise ConfigurationError(
            f"num_train_epochs={epochs} of {data.num_windows} windows is less than one batch of {config.batch_size}: "
            "train longer, or lower batch_size"
        )
    return steps
