"""What each component of a mixture will give to a training, to be looked at before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class ComponentBudget:
    """One component. ``tokens`` and ``windows`` is what it holds, the rest what is taken of it.

    ``windows`` is after ``max_train_batches``. ``weights`` are as given, one for each stage; ``shares`` what becomes of
    them: its part of the sequences, rounded to whole ones of a block. ``epochs`` above 1: windows are seen again.
    """

    fingerprint_name: ClassVar[str] = "marin.ComponentBudget"

    name: str
    tokens: int
    windows: int
    weights: tuple[float, ...]
    shares: tuple[float, ...]
    sequences: int
    trained_tokens: int
    epochs: float


def budget_text(rows: Sequence[ComponentBudget], *, stage_steps: Sequence[int]) -> str:
    """The budget as a table, a line for each component and one for the sum; below it what a reader must not miss.

    ``stage_steps``: the first step of each stage.

    >>> web = ComponentBudget(name="web", tokens=9_000, windows=2, weights=(3.0,), shares=(1.0,), sequences=4,
    ...                       trained_tokens=16_000, epochs=2.0)
    >>> print(budget_text([web], stage_steps=[0]))
    component  tokens   share  trained on  epochs
    web         9,000  100.0%      16,000    2.00
    """
    shares = ["share"] if len(stage_steps) == 1 else [f"from step {step:,}" for step in _shown(stage_steps)]
    table = [["component", "tokens", *shares, "trained on", "epochs"]]
    for row in rows:
        cells = [_percent(share) for share in _shown(row.shares)]
        table.append([row.name, f"{row.tokens:,}", *cells, f"{row.trained_tokens:,}", f"{row.epochs:.2f}"])
    if len(rows) > 1:
        tokens, trained = sum(row.tokens for row in rows), sum(row.trained_tokens for row in rows)
        table.append(["all", f"{tokens:,}", *[""] * len(shares), f"{trained:,}", ""])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])]).rstrip() for cells in table]
    return "\n".join([*lines, *_remarks(rows, stage_steps)])


_MOST_STAGES = 4
"""Columns of shares that a line of the log has room for: of more stages the first and the last are shown."""


def _shown(of_stages: Sequence[float]) -> list[float]:
    return list(of_stages) if len(of_stages) <= _MOST_STAGES else [of_stages[0], of_stages[-1]]


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.01 or not share else f"{share:.2%}"


def _remarks(rows: Sequence[ComponentBudget], stage_steps: Sequence[int]) -> list[str]:
    remarks = list[str]()
    if len(stage_steps) > _MOST_STAGES:
        remarks.append(f"{len(stage_steps)} stages; shown are the first and the last")
    for row in rows:
        rounded = zip(stage_steps, row.weights, row.shares, strict=True)
        if silent := [f"{step:,}" for step, weight, share in rounded if weight and not share]:
            remarks.append(
                f"{row.name} gives nothing in the stages from step {', '.join(silent)}: its weight there is too small"
            )
    unused = [row.name for row in rows if not row.sequences]
    if unused:
        remarks.append(f"the training ends before {', '.join(unused)} gives anything")
    return remarks
