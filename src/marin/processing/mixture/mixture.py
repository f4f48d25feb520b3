"""Describe a mixture of token caches: weights, how they change with the step, and limits. Nothing is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from marin.errors import ConfigurationError
from marin.execution.lazy import ArtifactStep
from marin.processing.scalars import finite_number, whole_number
from marin.processing.tokenize.tokenize import TokenizedCache

__all__ = ["MIXTURE_FORMULA", "Mixture", "MixtureStage", "interpolated", "mixture"]

MIXTURE_FORMULA: Final = 1
"""Number of the rule from seed and step to batch, see ``docs/reference/mixture-formula.md``. Recorded with a training:
one that was begun under another number can't go on, as it would see some windows twice and others never."""

TokenStep: TypeAlias = ArtifactStep[TokenizedCache]
Weights: TypeAlias = Mapping[TokenStep, float]


@dataclass(frozen=True, kw_only=True)
class MixtureStage:
    """From step ``start_step`` on, sequences are taken in proportion to ``weights``, one for each component."""

    fingerprint_name: ClassVar[str] = "marin.MixtureStage"

    start_step: int
    weights: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Token caches and the weights that they are read with. Made by ``mixture`` and ``interpolated``.

    ``stages`` begin at step 0 and ascend. ``max_train_batches`` holds one limit for each component; ``None``: no limit.
    ``mask_boundaries``: the first token of a document is not learned where its input is the end of another one.
    """

    components: tuple[TokenStep, ...]
    stages: tuple[MixtureStage, ...]
    max_train_batches: tuple[int | None, ...]
    mask_boundaries: bool


def mixture(
    weights: Weights,
    *,
    stages: Mapping[int, Weights] | None = None,
    max_train_batches: Mapping[TokenStep, int] | None = None,
    mask_boundaries: bool = False,
) -> Mixture:
    """Token caches and their weights, relative to each other, for ``train_lm(datasets=...)``.

    ``stages`` are the weights from a step on: ``{20_000: {web: 1, code: 1}}`` replaces all weights at step 20,000; what
    a stage does not name has weight 0 in it. ``max_train_batches`` lets a component give at most so many batches worth
    of different sequences, a sample that the seed chooses; then these come again. ``mask_boundaries=True`` leaves out
    of the loss the first token of each document, which can't be told from the end of the document before it.

    >>> web = ArtifactStep(name="tokenized/web", artifact_type=TokenizedCache, run="my_project.web:tokenize")
    >>> code = ArtifactStep(name="tokenized/code", artifact_type=TokenizedCache, run="my_project.code:tokenize")
    >>> mixed = mixture({web: 0.9, code: 0.1}, stages={20_000: {web: 0.5, code: 0.5}})
    >>> [(stage.start_step, stage.weights) for stage in mixed.stages]
    [(0, (0.9, 0.1)), (20000, (0.5, 0.5))]
    """
    by_step = {0: checked_weights("mixture", weights)}
    for key, later in checked_mapping("mixture", "stages", {} if stages is None else stages).items():
        start_step = whole_number(key)
        if start_step is None or start_step < 1:
            raise ConfigurationError(
                f"mixture: a stage begins at step {key!r}: a step is a whole number from 1 on; the weights from "
                "step 0 on are the first argument"
            )
        by_step[start_step] = checked_weights(f"mixture: stage {start_step}", later)
    return _assembled(dict(sorted(by_step.items())), max_train_batches, mask_boundaries, what="mixture")


def interpolated(
    before: Weights,
    after: Weights,
    *,
    start_step: int = 0,
    end_step: int,
    stages: int = 16,
    max_train_batches: Mapping[TokenStep, int] | None = None,
    mask_boundaries: bool = False,
) -> Mixture:
    """Weights that go from ``before`` to ``after`` between two steps, in a straight line, in ``stages`` equal parts.

    Up to ``start_step`` they are ``before``, from ``end_step`` on ``after``; each part has the weights of its middle. A
    share is what goes in a straight line: 3 to 1 and 0.75 to 0.25 mean the same. The other arguments are as of
    ``mixture``.

    >>> web = ArtifactStep(name="tokenized/web", artifact_type=TokenizedCache, run="my_project.web:tokenize")
    >>> code = ArtifactStep(name="tokenized/code", artifact_type=TokenizedCache, run="my_project.code:tokenize")
    >>> mixed = interpolated({web: 1}, {web: 1, code: 1}, start_step=100, end_step=300, stages=2)
    >>> [(stage.start_step, stage.weights) for stage in mixed.stages]
    [(0, (1.0, 0.0)), (100, (0.875, 0.125)), (200, (0.625, 0.375)), (300, (0.5, 0.5))]
    """
    start_step = _checked_count("start_step", start_step, 0)
    end_step, stages = _checked_count("end_step", end_step, 1), _checked_count("stages", stages, 1)
    if end_step - start_step < stages:
        raise ConfigurationError(
            f"interpolated: from start_step={start_step} to end_step={end_step} are fewer steps than stages={stages}: "
            "end later, or lower stages"
        )
    first = _shares(checked_weights("interpolated: before", before))
    last = _shares(checked_weights("interpolated: after", after))
    by_step: dict[int, dict[TokenStep, float]] = {0: first}
    for part in range(stages):
        done = (2 * part + 1) / (2 * stages)
        by_step[start_step + part * (end_step - start_step) // stages] = {
            step: (1 - done) * first.get(step, 0.0) + done * last.get(step, 0.0) for step in {**first, **last}
        }
    by_step[end_step] = last
    return _assembled(by_step, max_train_batches, mask_boundaries, what="interpolated")


def checked_weights(what: str, weights: object) -> dict[TokenStep, float]:
    """``weights`` as numbers. Raises ``ConfigurationError``, which begins with ``what``, for what can't be mixed.

    Each weight is finite and not negative, and one at least is positive.
    """
    given = checked_mapping(what, "datasets", weights)
    if not given:
        raise ConfigurationError(f"{what}: datasets is empty: give token caches and their weights, {{tokens: 1.0}}")
    checked = {checked_cache(what, "datasets", step): _checked_weight(what, step, w) for step, w in given.items()}
    if not any(checked.values()):
        raise ConfigurationError(f"{what}: the weights of datasets sum to 0: give at least one a positive weight")
    return checked


def checked_mapping(what: str, key: str, value: object) -> Mapping[Any, Any]:
    """``value``, if it is a mapping."""
    if not isinstance(value, Mapping):
        wanted = "token caches to weights, {tokens: 1.0}"
        if key == "stages":
            wanted = "steps to weights, {1000: {tokens: 1.0}}"
        if key == "max_train_batches":
            wanted = "token caches to numbers of batches, {tokens: 100}"
        other = "a token cache, or " if key == "datasets" else ""
        raise ConfigurationError(f"{what}: {key} is {type(value).__name__}: give {other}a mapping of {wanted}")
    return value


def checked_cache(what: str, key: str, step: object) -> TokenStep:
    """``step``, if it is the handle of a token cache."""
    if isinstance(step, ArtifactStep) and issubclass(step.artifact_type, TokenizedCache):
        return step
    shown = repr(step) if isinstance(step, ArtifactStep) else f"{type(step).__name__} {step!r}"
    raise ConfigurationError(f"{what}: {key} has {shown}, which is no token cache: give a tokenized(...) handle")


def _checked_weight(what: str, step: object, weight: object) -> float:
    number = finite_number(weight)
    if number is None or number < 0:
        raise ConfigurationError(
            f"{what}: the weight of {step!r} is {weight!r}: a weight is a finite number, zero or more"
        )
    return number


def _checked_count(key: str, value: object, least: int) -> int:
    count = whole_number(value)
    if count is None or count < least:
        raise ConfigurationError(f"interpolated: {key}={value!r} is not a whole number of at least {least}")
    return count


def _shares(weights: Mapping[TokenStep, float]) -> dict[TokenStep, float]:
    largest = max(weights.values())  # the sum of the weights themselves might overflow
    total = math.fsum(weight / largest for weight in weights.values())
    return {step: weight / largest / total for step, weight in weights.items()}


def _assembled(
    by_step: Mapping[int, Mapping[TokenStep, float]],
    max_train_batches: Mapping[TokenStep, int] | None,
    mask_boundaries: object,
    *,
    what: str,
) -> Mixture:
    components = tuple(dict.fromkeys(step for weights in by_step.values() for step in weights))
    ids = [step.id for step in components]
    if twice := [step for step in components if ids.count(step.id) > 1]:
        raise ConfigurationError(f"{what}: {twice[0]!r} is there twice, as two handles: make it once and use that one")
    limits = dict[TokenStep, int]()
    given = checked_mapping(what, "max_train_batches", {} if max_train_batches is None else max_train_batches)
    for step, value in given.items():
        if step not in components:
            raise ConfigurationError(f"{what}: max_train_batches has {step!r}, which has no weight: leave it out")
        limit = whole_number(value)
        if limit is None or limit < 1:
            raise ConfigurationError(
                f"{what}: max_train_batches of {step!r} is {value!r}: give a whole number from 1 on"
            )
        limits[step] = limit
    if not isinstance(mask_boundaries, bool):
        raise ConfigurationError(f"{what}: mask_boundaries={mask_boundaries!r} is neither True nor False")
    return Mixture(
        components=components,
        stages=tuple(
            MixtureStage(start_step=start, weights=tuple(weights.get(step, 0.0) for step in components))
            for start, weights in by_step.items()
        ),
        max_train_batches=tuple(limits.get(step) for step in components),
        mask_boundaries=mask_boundaries,
    )
