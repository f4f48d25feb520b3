"""Which component each sequence of a training takes its window from, by exact counts and without any state.

Sequences are numbered from 0 in the order of the batches. A stage is cut into blocks of ``MIXTURE_BLOCK``; each block
holds its components in fixed numbers, in an order of its own. So what came before a sequence is a product and the sum
over one block, however far it is.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from marin.errors import ConfigurationError
from marin.processing.mixture.mixture import MixtureStage
from marin.processing.mixture.shuffle import Words, mix

Ints: TypeAlias = NDArray[np.int64]

MIXTURE_BLOCK = 2048
"""In every so many sequences the mixture is exact to the nearest sequence. One in it is the smallest share."""

LAST_SEQUENCE = 1 << 62
"""Sequences are numbered below this: 2**40 steps of four million sequences, and all sums fit 64 bits."""

BLOCK_SALT = 1 << 63
"""Keeps the keys of blocks apart from those of epochs, which have a component there."""

_KEPT_BLOCKS = 64
"""Blocks whose order is remembered. A batch of 131,072 sequences touches so many."""


def block_counts(weights: Sequence[float]) -> Ints:
    """Sequences of each component in a block of ``MIXTURE_BLOCK``: proportional, the largest remainders rounded up.

    In Python's own floats, whose sum is rounded once: the same counts on every machine.

    >>> block_counts([1.0, 1.0, 2.0]).tolist()
    [512, 512, 1024]
    """
    largest = max(weights)
    relative = [weight / largest for weight in weights]  # the sum of the weights themselves might overflow
    total = math.fsum(relative)
    exact = [share / total * MIXTURE_BLOCK for share in relative]
    counts = [math.floor(share) for share in exact]
    missing = MIXTURE_BLOCK - sum(counts)
    for number in sorted(range(len(counts)), key=lambda number: counts[number] - exact[number])[:missing]:
        counts[number] += 1
    return np.array(counts, np.int64)


def check_stages(stages: Sequence[MixtureStage], *, components: int) -> None:
    """Raise ``ConfigurationError`` unless ``stages`` can be followed: from step 0 on, ascending, weights that mix."""
    steps = [stage.start_step for stage in stages]
    if not steps or steps[0] != 0 or any(late <= early for early, late in itertools.pairwise(steps)):
        raise ConfigurationError(f"the stages of the mixture begin at steps {steps}: they must ascend from 0")
    for stage in stages:
        where = f"the weights of the mixture from step {stage.start_step} on are {list(stage.weights)}"
        if len(stage.weights) != components:
            raise ConfigurationError(f"{where}, but there are {components} components: give one weight for each")
        if not all(math.isfinite(weight) and weight >= 0 for weight in stage.weights):
            raise ConfigurationError(f"{where}: a weight is a finite number, zero or more")
        if not any(stage.weights):
            raise ConfigurationError(f"{where}: give at least one a positive weight")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block: the component of each of its slots, and how many sequences that component had given before it."""

    components: Ints
    ordinals: Ints


@dataclass(frozen=True, kw_only=True)
class _Stage:
    first: int
    """Its first sequence."""
    first_block: int
    """Its first block, counted over all stages: no two blocks of a training have one number."""
    counts: Ints
    before: Ints
    """What each component has given when it begins."""


class Schedule:
    """The stages of a mixture, laid out over the sequences of a training."""

    def __init__(self, stages: Sequence[MixtureStage], *, batch_size: int, seed: int) -> None:
        """Raises ``ConfigurationError`` for stages that can't be followed."""
        check_stages(stages, components=len(stages[0].weights) if stages else 0)
        self._seed = seed
        self.block = functools.lru_cache(maxsize=_KEPT_BLOCKS)(self._make_block)
        self._stages, self._firsts = list[_Stage](), list[int]()
        for stage in stages:
            self._append(stage.start_step * batch_size, block_counts(stage.weights))

    def _append(self, first: int, counts: Ints) -> None:
        before, first_block = np.zeros_like(counts), 0
        if self._stages:
            last = self._stages[-1]
            before = self.given_before(first)
            first_block = last.first_block - (last.first - first) // MIXTURE_BLOCK  # rounded up
        self._stages.append(_Stage(first=first, first_block=first_block, counts=counts, before=before))
        self._firsts.append(first)

    @property
    def counts(self) -> list[Ints]:
        """Sequences of each component in a block, stage by stage."""
        return [stage.counts for stage in self._stages]

    def place(self, sequence: int) -> tuple[int, int, int]:
        """Where ``sequence`` is: its stage, its block within the stage, its slot within the block."""
        if not 0 <= sequence < LAST_SEQUENCE:
            raise IndexError(f"there is no sequence {sequence}: they are numbered from 0 to 2**62 - 1")
        number = bisect.bisect_right(self._firsts, sequence) - 1
        return (number, *divmod(sequence - self._firsts[number], MIXTURE_BLOCK))

    def pieces(self, first: int, count: int) -> list[tuple[int, int, slice]]:
        """The sequences from ``first`` on as parts of blocks: stage, block and slots of each."""
        found, end = list[tuple[int, int, slice]](), first + count
        while first < end:
            number, block, slot = self.place(first)
            last = min(end, first - slot + MIXTURE_BLOCK, *self._firsts[number + 1 : number + 2])
            found.append((number, block, slice(slot, slot + last - first)))
            first = last
        return found

    def given_before(self, sequence: int) -> Ints:
        """How many sequences each component has given before ``sequence``."""
        number, block, slot = self.place(sequence)
        stage = self._stages[number]
        begun = self.block(number, block).components[:slot] if slot else np.zeros(0, np.int64)
        return stage.before + block * stage.counts + np.bincount(begun, minlength=len(stage.counts))

    def _make_block(self, number: int, block: int) -> Block:
        stage = self._stages[number]
        keys: Words = mix(self._seed, BLOCK_SALT, stage.first_block + block, np.arange(MIXTURE_BLOCK))
        components = np.repeat(np.arange(len(stage.counts)), stage.counts)[np.argsort(keys, kind="stable")]
        # A stable sort by component lists the slots of each in order: where a slot stands there is its rank.
        slots = np.argsort(components, kind="stable")
        ranks = np.empty_like(slots)
        ranks[slots] = np.arange(MIXTURE_BLOCK) - np.repeat(np.cumsum(stage.counts) - stage.counts, stage.counts)
        return Block(components=components, ordinals=(stage.before + block * stage.counts)[components] + ranks)
