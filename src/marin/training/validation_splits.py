"""What a training validates on, checked before step 0."""

from __future__ import annotations

from collections.abc import Sequence

from marin.errors import DataError
from marin.processing.mixture.batches import Component
from marin.processing.mixture.faults import Faults
from marin.processing.tokenize.manifest import TRAIN, VALIDATION
from marin.processing.tokenize.open_stream import OpenSplit, open_split
from marin.processing.tokenize.tokenize import TokenizedCache
from marin.training.train_config import DatasetConfig, TrainLmConfig


def component_name(dataset: DatasetConfig) -> str:
    """What messages and metrics call it."""
    return dataset.name or dataset.cache.path


def validation_splits(
    config: TrainLmConfig, components: Sequence[Component[OpenSplit] | None], used: Sequence[int], faults: Faults
) -> dict[str, OpenSplit]:
    """What the training validates on, by the name of the component; what is wrong with it goes to ``faults``."""
    chosen = dict[str, tuple[TokenizedCache, str]]()  # by path, as one cache may be given twice
    names = dict[str, str]()
    if config.validation is None:
        held_out = [dataset.cache.has_validation for dataset in config.datasets]
        for dataset, component, has in zip(config.datasets, components, held_out, strict=True):
            if component and has:
                chosen[dataset.cache.path] = dataset.cache, VALIDATION
                names[dataset.cache.path] = component_name(dataset)
        if not any(held_out) and config.eval_every is not None:
            faults.add(
                DataError(
                    f"eval_every={config.eval_every}, but none of the data sets has a validation split: hold some out "
                    "with tokenized(..., held_out=0.01), or give validation=[...]"
                )
            )
    else:
        trained_on = {config.datasets[number].cache.path for number in used}
        for number, cache in enumerate(config.validation):
            split = VALIDATION if cache.has_validation else TRAIN
            chosen[cache.path] = cache, split
            names[cache.path] = config.validation_names[number] if config.validation_names else cache.path
            if split == TRAIN and cache.path in trained_on:
                faults.add(
                    DataError(
                        f"validation overlaps the training: {cache.path} is trained on and has no validation split"
                    )
                )
    readers = dict[str, OpenSplit]()
    for path, (cache, split) in chosen.items():
        with faults.collected():
            readers[names[path]] = _validation_reader(cache, split)
    return readers


def _validation_reader(cache: TokenizedCache, split: str) -> OpenSplit:
    cache.verify()
    reader = open_split(cache, split)
    if reader.num_tokens < 2:
        raise DataError(
            f"the {split} split of {cache.path} has {reader.num_tokens} tokens: there is nothing to predict; "
            "hold out more text"
        )
    if not reader.text_bytes:
        raise DataError(
            f"how much text the {split} split of {cache.path} was made from is not known, so that bits per byte "
            "can't be told: adopt it with its tokenizer itself, not with the fields of its identity"
        )
    return reader
