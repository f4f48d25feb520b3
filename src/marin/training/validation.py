"""What a training measures between its steps: its validation splits, and what the author's own evaluations tell."""

from __future__ import annotations

from collections.abc import Callable

import jax

from marin.training.checkpoint import Evaluation
from marin.training.evals import EvaluatedModel, eval_row, make_logits
from marin.training.evaluate import evaluate_splits, make_evaluate_batch, together
from marin.training.metrics import Notes, Row, validation_row
from marin.training.models.implementation import Params
from marin.training.placement import Placement
from marin.training.prepare import Prepared
from marin.training.progress_note import validation_note
from marin.training.train_config import TrainLmConfig


class Validation:
    """Before the first step, every so many steps, and after the last."""

    def __init__(self, config: TrainLmConfig, prepared: Prepared, placement: Placement) -> None:
        self._config, self._prepared, self._placement = config, prepared, placement
        self._evaluate_batch = make_evaluate_batch(prepared.model, placement.compute)
        self._logits = make_logits(prepared.model, placement.compute)
        self._measured_at: int | None = None

    def is_due(self, done: int, metrics: Notes) -> bool:
        """Whether something is to be measured after ``done`` updates that has not been."""
        if done % self._prepared.eval_every and done != self._prepared.num_steps:
            return False
        if not self._prepared.validation:
            return bool(self._prepared.evals) and self._measured_at != done
        return metrics.validation(at_step=done) is None

    def measure(self, done: int, params: Params, *, between: Callable[[], None]) -> tuple[list[Row], str]:
        """The rows for the metrics, and what to say. ``between`` is called before each batch, and may raise to stop."""
        self._measured_at = done
        row, said = self._evaluated(done, params)
        rows, notes = [{"step": done, **row}] if row else [], [said] if said else []
        if splits := list(self._prepared.validation.values()):
            found = evaluate_splits(
                self._evaluate_batch,
                params,
                splits,
                seq_len=self._config.seq_len,
                segments=self._config.packing == "segmented",
                placement=self._placement,
                between=between,
            )
            result = together(found, splits)
            # The last of the rows: with it there, nothing is asked again at this step.
            rows.append(validation_row(done, result, dict(zip(self._prepared.validation, found, strict=True))))
            notes.insert(0, validation_note(result))
        return rows, " · ".join(notes)

    def _evaluated(self, done: int, params: Params) -> tuple[Row, str]:
        """What the author's evaluations tell."""
        if not self._prepared.evals:
            return {}, ""
        model = EvaluatedModel(
            step=done,
            config=self._prepared.model,
            params=jax.tree.map(lambda array: array, params),  # a tree of its own: what it does to it stays with it
            tokenizer=self._config.datasets[0].cache.tokenizer,
            logits=lambda tokens: self._logits(params, tokens),
        )
        row = eval_row(self._prepared.evals, model)
        return row, " · ".join(f"{key} {value:.4g}" for key, value in row.items())


def last_validation(metrics: Notes, *, at_step: int) -> Evaluation | None:
    """The validation that was made after ``at_step`` updates, the first or the last one."""
    if (row := metrics.validation(at_step=at_step)) is None:
        return None
    return Evaluation(
        loss=row["validation_loss"], bits_per_byte=row.get("bits_per_byte"), tokens=row["validation_tokens"]
    )
