"""The loop over steps: update, measure, validate, save.

The batch and the learning rate of a step are pure functions of its number, so a resumed training needs the saved arrays
and nothing else, and gives the same bits as an uninterrupted one.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from statistics import fmean
from typing import Any

import numpy as np

from marin.errors import DataError, NonFiniteLossError, RunInterrupted
from marin.execution.progress import report
from marin.training.arrays import NamedArrays, named_arrays, tree_of
from marin.training.checkpoint import Evaluation
from marin.training.evaluate import evaluate_readers, make_evaluate_batch
from marin.training.interrupts import Interrupts, StopRequested
from marin.training.metrics import MetricsLog
from marin.training.prepare import Prepared
from marin.training.rolling import RollingCheckpoints
from marin.training.train import TrainLmConfig
from marin.training.update import Measured, TrainState, make_update, new_state

LOG_SECONDS = 30.0
"""How often the log gets a line, beside those about validations."""

RECENT_STEPS = 20
"""The progress shows the mean loss of so many steps: that of a single batch jumps about."""

_LOG = logging.getLogger(__name__)


class TrainingLoop:
    """One training, from the state where it stands to its last step."""

    def __init__(
        self,
        config: TrainLmConfig,
        prepared: Prepared,
        *,
        checkpoints: RollingCheckpoints,
        metrics_path: str,
        interrupts: Interrupts,
    ) -> None:
        self._config, self._prepared = config, prepared
        self._checkpoints, self._interrupts = checkpoints, interrupts
        self._done, self._state = self._first_state()
        self._metrics = MetricsLog(metrics_path, last_step=self._done)
        self._update = make_update(config.model, config.optimizer, precision=config.precision, z_loss=config.z_loss)
        self._evaluate_batch = make_evaluate_batch(config.model, config.precision)
        self._pending: tuple[int, Measured] | None = None
        self._speed = _Speed(config.batch_size * config.seq_len)
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._saved_at = time.monotonic()
        self._logged_at = -LOG_SECONDS  # the first step is told at once

    def run(self) -> tuple[NamedArrays, list[dict[str, Any]]]:
        """The trained parameters, and every line of the metrics. On a signal it saves and raises ``RunInterrupted``."""
        with self._metrics:
            try:
                self._run()
            except StopRequested:
                self._stop()
        return named_arrays(self._state.params), self._metrics.lines

    def _run(self) -> None:
        num_steps = self._prepared.num_steps
        batch = self._batch(self._done)
        self._report(self._done, "compiling")
        while True:
            self._interrupts.check()
            if self._validation_is_due():
                self._settle()
                self._validate()
            if self._done >= num_steps:
                break
            if time.monotonic() - self._saved_at >= self._config.checkpoint_seconds:
                self._save()
            rate = np.float32(self._config.optimizer.learning_rate(self._done, num_steps))
            self._state, measured = self._update(self._state, batch, rate)
            # While the device computes this step, the host logs the one before and gathers the next batch.
            self._settle()
            self._pending = (self._done, measured)
            self._done += 1
            batch = self._batch(min(self._done, num_steps - 1))
        self._settle()

    def _first_state(self) -> tuple[int, TrainState]:
        config = self._config
        state = new_state(config.model, config.optimizer, vocab_size=self._prepared.vocab_size, seed=config.seed)
        if (saved := self._checkpoints.newest()) is None:
            return 0, state
        step, arrays = saved
        _LOG.warning("resumed after step %d of %d", step, self._prepared.num_steps)
        return step, tree_of(arrays, state, origin=self._checkpoints.describe_newest())

    def _batch(self, step: int) -> Any:
        tokens = self._prepared.data.batch(step)
        if (largest := int(tokens.max())) >= self._prepared.vocab_size:
            raise DataError(
                f"the batch of step {step} holds token id {largest}, but the vocabulary has "
                f"{self._prepared.vocab_size} tokens: tokenize the data again"
            )
        return tokens

    def _settle(self) -> None:
        """Wait for the step that was started last, check and log it."""
        if self._pending is None:
            return
        step, measured = self._pending
        self._pending = None
        loss, norm = float(measured.loss), float(measured.gradient_norm)
        if not bool(measured.finite):
            raise NonFiniteLossError(
                f"step {step}: loss {loss}, gradient norm {norm}; the update was not applied. "
                f"Windows of the batch: {self._prepared.data.windows(step)[:8]}. Last good checkpoint: "
                f"{self._checkpoints.describe_newest()}. Lower the learning rate, or lengthen the warm-up"
            )
        tokens_per_second = self._speed.step()
        rate = self._config.optimizer.learning_rate(step, self._prepared.num_steps)
        tokens = (step + 1) * self._config.batch_size * self._config.seq_len
        self._metrics.write(
            {
                "step": step + 1,
                "loss": loss,
                "learning_rate": rate,
                "gradient_norm": norm,
                "tokens": tokens,
                "tokens_per_second": tokens_per_second,
            }
        )
        self._recent.append(loss)
        speed = f" · {tokens_per_second:,.0f} tok/s" if tokens_per_second else ""  # not known at the first step
        note = f"loss {fmean(self._recent):.2f}{speed}"
        self._report(step + 1, note)
        if time.monotonic() - self._logged_at >= LOG_SECONDS:
            self._log(step + 1, note)

    def _report(self, done: int, note: str) -> None:
        report(done, self._prepared.num_steps, "steps", note)

    def _log(self, done: int, note: str) -> None:
        """A line for the log of the step, which is what its process prints."""
        self._logged_at = time.monotonic()
        print(f"step {done:,}/{self._prepared.num_steps:,}  {note}", flush=True)

    def _validation_is_due(self) -> bool:
        done, every = self._done, self._prepared.eval_every
        if not self._prepared.validation or (done % every and done != self._prepared.num_steps):
            return False
        return last_validation(self._metrics.lines, at_step=done) is None

    def _validate(self) -> None:
        self._report(self._done, "validating")
        result = evaluate_readers(
            self._evaluate_batch,
            self._state.params,
            self._prepared.validation,
            seq_len=self._config.seq_len,
            between=self._interrupts.check,
        )
        self._metrics.write(
            {
                "step": self._done,
                "validation_loss": result.loss,
                "bits_per_byte": result.bits_per_byte,
                "validation_tokens": result.tokens,
            }
        )
        note = f"validation loss {result.loss:.2f}, {result.bits_per_byte:.3f} bits per byte"
        self._report(self._done, note)
        self._log(self._done, note)
        self._speed.pause()

    def _save(self) -> str:
        self._settle()
        self._metrics.sync()
        path = self._checkpoints.save(self._done, named_arrays(self._state))
        self._saved_at = time.monotonic()
        self._speed.pause()
        return path

    def _stop(self) -> None:
        number = self._interrupts.received
        assert number is not None
        path = self._save()
        raise RunInterrupted(
            f"{number.name} after step {self._done} of {self._prepared.num_steps}; saved {path}, run again to go on",
            128 + number,
        )


class _Speed:
    """Tokens per second of this process, compiling, validating and saving left out."""

    def __init__(self, tokens_per_step: int) -> None:
        self._tokens_per_step = tokens_per_step
        self._mark: float | None = None
        self._seconds, self._steps = 0.0, 0

    def step(self) -> float:
        """Note the end of a step; the speed so far, 0 until it is known."""
        now = time.monotonic()
        if self._mark is not None:
            self._seconds, self._steps = self._seconds + now - self._mark, self._steps + 1
        self._mark = now
        return self._steps * self._tokens_per_step / self._seconds if self._seconds else 0.0

    def pause(self) -> None:
        """Leave out the time since the last step."""
        self._mark = None


def last_validation(lines: list[dict[str, Any]], *, at_step: int) -> Evaluation | None:
    """The validation that was made after ``at_step`` updates."""
    for line in reversed(lines):
        if line["step"] == at_step and "validation_loss" in line:
            return Evaluation(
                loss=line["validation_loss"], bits_per_byte=line["bits_per_byte"], tokens=line["validation_tokens"]
            )
    return None
