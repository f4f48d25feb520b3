"""The batches of a training: a pure function of seed and step, so that going on needs no state of the loader.

The rule is ``MIXTURE_FORMULA``; ``docs/reference/mixture-formula.md`` tells it in full.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from marin.errors import DataError
from marin.processing.mixture.budget import ComponentBudget
from marin.processing.mixture.faults import Faults
from marin.processing.mixture.mixture import MixtureStage
from marin.processing.mixture.schedule import MIXTURE_BLOCK, Schedule, block_counts, check_stages
from marin.processing.mixture.shuffle import Permutations, mix
from marin.processing.mixture.windows import Batch, Ints, gather, num_windows
from marin.processing.tokenize.stream import TokenStream

SAMPLE_SALT = 1 << 62
"""Keeps the key of a limited component's sample apart from those of its epochs, which are numbered below this."""

_KEPT_BLOCKS = 64


S = TypeVar("S", bound=TokenStream, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Component(Generic[S]):
    """One data set of a mixture. ``max_train_batches``: it gives at most so many batches of different windows."""

    name: str
    stream: S
    max_train_batches: int | None = None


def host_rows(batch_size: int, host: int, hosts: int) -> range:
    """The rows of the global batch that host ``host`` of ``hosts`` takes; as even as they can be, in order.

    >>> [list(host_rows(6, host, 4)) for host in range(4)]
    [[0], [1, 2], [3], [4, 5]]
    """
    if not 0 <= host < hosts:
        raise IndexError(f"host {host} of {hosts}: hosts are numbered from 0 to {hosts - 1}")
    return range(host * batch_size // hosts, (host + 1) * batch_size // hosts)


class TrainingData:
    """The training batches of a mixture, in an order that ``seed`` alone decides.

    Within one epoch of a component each of its windows comes exactly once; every epoch has an order of its own.
    """

    def __init__(
        self,
        components: Sequence[Component[TokenStream]],
        stages: Sequence[MixtureStage],
        *,
        seq_len: int,
        batch_size: int,
        seed: int,
        mask_boundaries: bool = False,
        segments: bool = False,
    ) -> None:
        """``stages`` hold one weight for each of ``components``; those that are 0 in every stage are left out.

        ``segments``: batches have ``segment_ids`` and ``positions``. Raises one error for all components that have too
        few tokens or too small a share.
        """
        check_stages(stages, components=len(components))
        used = used_components(stages)
        self.components = [components[number] for number in used]
        self.stages = [
            MixtureStage(start_step=stage.start_step, weights=tuple(stage.weights[number] for number in used))
            for stage in stages
        ]
        self.schedule = Schedule(self.stages, batch_size=batch_size, seed=seed)
        self._streams = [component.stream for component in self.components]
        self._seq_len, self._batch_size, self._seed = seq_len, batch_size, seed
        self._mask_boundaries, self._segments = mask_boundaries, segments
        held = [num_windows(stream.num_tokens, seq_len) for stream in self._streams]
        sizes = [_limited(each, windows, batch_size) for each, windows in zip(self.components, held, strict=True)]
        self._check(sum(sizes))
        self._sizes, self._limited = np.array(sizes, np.int64), np.array(sizes) < np.array(held)
        self._epochs, self._samples = Permutations(sizes), Permutations(held)
        self._block_windows = functools.lru_cache(maxsize=_KEPT_BLOCKS)(self._make_block_windows)

    @property
    def num_windows(self) -> int:
        """Windows of all components together, limits applied: what one epoch consists of."""
        return int(self._sizes.sum())

    def _check(self, windows: int) -> None:
        faults = Faults()
        names = [component.name for component in self.components]
        for fault in (
            *(fault for component in self.components for fault in size_faults(component, seq_len=self._seq_len)),
            *share_faults(names, self.stages),
        ):
            faults.add(fault)
        faults.raise_all("the training data")
        if windows < self._batch_size:
            raise DataError(
                f"the training data ({', '.join(names)}) holds {windows} windows of seq_len={self._seq_len} tokens, "
                f"fewer than one batch of {self._batch_size}: lower batch_size or seq_len, or give more text"
            )

    def budget(self, num_steps: int) -> tuple[ComponentBudget, ...]:
        """What each component will have given after ``num_steps`` steps."""
        given = self.schedule.given_before(num_steps * self._batch_size)
        return tuple(
            ComponentBudget(
                name=component.name,
                tokens=component.stream.num_tokens,
                windows=int(size),
                weights=tuple(stage.weights[number] for stage in self.stages),
                shares=tuple(int(counts[number]) / MIXTURE_BLOCK for counts in self.schedule.counts),
                sequences=int(given[number]),
                trained_tokens=int(given[number]) * self._seq_len,
                epochs=int(given[number]) / int(size),
            )
            for number, (component, size) in enumerate(zip(self.components, self._sizes, strict=True))
        )

    def batch(self, step: int, *, host: int = 0, hosts: int = 1) -> Batch:
        """The rows of update ``step`` (from 0) that ``host`` of ``hosts`` takes. Takes the same time for any step."""
        components, windows = self.windows(step, host=host, hosts=hosts)
        return gather(
            self._streams,
            components,
            windows,
            seq_len=self._seq_len,
            mask_boundaries=self._mask_boundaries,
            segments=self._segments,
        )

    def windows(self, step: int, *, host: int = 0, hosts: int = 1) -> tuple[Ints, Ints]:
        """Which windows are in the batch of ``step``: for each row its component and its window there."""
        rows = host_rows(self._batch_size, host, hosts)
        components, windows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for stage, block, slots in self.schedule.pieces(step * self._batch_size + rows.start, len(rows)):
            components.append(self.schedule.block(stage, block).components[slots])
            windows.append(self._block_windows(stage, block)[slots])
        return np.concatenate(components), np.concatenate(windows)

    def described(self, step: int) -> str:
        """The first windows of the batch of ``step``, for messages: component and window."""
        components, windows = (each[:8].tolist() for each in self.windows(step))
        return ", ".join(
            f"{self.components[number].name} {window}" for number, window in zip(components, windows, strict=True)
        )

    def _make_block_windows(self, stage: int, number: int) -> Ints:
        """The window of each slot of a block. By the block, as numpy does 2048 in little more time than one."""
        block = self.schedule.block(stage, number)
        components = block.components
        epochs, within = np.divmod(block.ordinals, self._sizes[components])
        windows = self._epochs.at(components, within, mix(self._seed, components, epochs))
        sampled = np.flatnonzero(self._limited[components])
        if len(sampled):
            chosen = components[sampled]
            windows[sampled] = self._samples.at(chosen, windows[sampled], mix(self._seed, SAMPLE_SALT, chosen))
        return windows


def used_components(stages: Sequence[MixtureStage]) -> list[int]:
    """Which components have a weight in some stage; the others are not trained on."""
    return [number for number in range(len(stages[0].weights)) if any(stage.weights[number] for stage in stages)]


def size_faults(component: Component[TokenStream], *, seq_len: int) -> list[DataError]:
    """What keeps a component from being trained on at all."""
    tokens = component.stream.num_tokens
    if num_windows(tokens, seq_len):
        return []
    return [
        DataError(
            f"{component.name} has {tokens} training tokens, fewer than the {seq_len + 1} of one window (seq_len + 1): "
            f"give it more text, or lower seq_len={seq_len}"
        )
    ]


def share_faults(names: Sequence[str], stages: Sequence[MixtureStage]) -> list[DataError]:
    """Which components have a weight, and are never given a sequence for it."""
    counts = [block_counts(stage.weights) for stage in stages]
    return [
        DataError(
            f"the weight of {names[number]} gives it less than one in {MIXTURE_BLOCK} sequences, which is never: "
            "raise its weight, or leave it out"
        )
        for number in used_components(stages)
        if not any(of_stage[number] for of_stage in counts)
    ]


def _limited(component: Component[TokenStream], windows: int, batch_size: int) -> int:
    if component.max_train_batches is None:
        return windows
    return min(windows, component.max_train_batches * batch_size)
