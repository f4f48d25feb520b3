"""The loop over steps: update, measure, validate, save.

The batch and the learning rate of a step are pure functions of its number, so a resumed training needs the saved arrays
and nothing else, and gives the same bits as an uninterrupted one.

A little over 300 lines, so that the order in which a step is computed, checked, told and saved is read in one go.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from statistics import fmean

import jax
import numpy as np

from marin.errors import CheckpointError, DataError, NonFiniteLossError, RunInterrupted
from marin.execution.progress import report
from marin.execution.results import to_json
from marin.processing.heap import trim_heap
from marin.training.agreement import Agreement, Alone, Together
from marin.training.arrays import NamedArrays, load_arrays, named_arrays, tree_bytes, tree_of
from marin.training.checkpoint import METRICS_FILE, Checkpoint
from marin.training.checkpoint_writer import CheckpointWriter
from marin.training.dealing import own_copy, whole_on_first
from marin.training.disk_need import check_disk
from marin.training.hosts import Hosts
from marin.training.interrupts import Interrupts, StopRequested
from marin.training.loss import CHUNK_TOKENS
from marin.training.memory import MemoryMeter
from marin.training.memory_report import TrainingShape, memory_explained
from marin.training.metrics import Notes, Row, opened_metrics, step_row
from marin.training.optimizer_rules import decay_counts
from marin.training.optimizers import learning_rate_text
from marin.training.placement import Placement
from marin.training.prepare import Prepared
from marin.training.progress_note import log_line, training_note
from marin.training.rolling import RollingCheckpoints
from marin.training.throughput import Throughput, devices_peak
from marin.training.trackers.running import Trackers
from marin.training.trackers.tracker import TrackedRun
from marin.training.train_config import TrainLmConfig
from marin.training.update import Measured, Rows, TrainState, make_update, new_state, rows_of, state_shapes
from marin.training.validation import Validation

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
        placement: Placement,
        *,
        checkpoints: RollingCheckpoints,
        interrupts: Interrupts,
        hosts: Hosts,
    ) -> None:
        self._config, self._prepared, self._placement = config, prepared, placement
        self._checkpoints, self._hosts = checkpoints, hosts
        self._leads = hosts.index == 0
        """It alone writes and tells what the training leaves; the others compute, and write their part of saves."""
        self._done, self._state = self._first_state()
        path = os.path.join(config.output_path, METRICS_FILE)
        self._metrics = opened_metrics(path, last_step=self._done, hosts=hosts)
        self._writer = CheckpointWriter(
            checkpoints,
            config.checkpoints,
            copy=lambda state, reuse: own_copy(state, reuse, hosts),
            canonical=placement.canonical,
            before_marking=self._metrics.sync,
        )
        self._agreement: Agreement = (
            Alone(interrupts, self._writer.is_time)
            if hosts.count == 1
            else Together(interrupts, self._writer.is_time if self._leads else None, placement)
        )
        run = TrackedRun(
            name=config.name or os.path.basename(config.output_path),
            output_path=config.output_path,
            resumed_step=self._done,
            num_steps=prepared.num_steps,
            config=to_json({**vars(config), "trackers": ()}),
        )
        self._trackers = Trackers(config.trackers if self._leads else (), run)
        self._validation = Validation(config, prepared, placement)
        self._update = make_update(
            prepared.model,
            config.optimizer,
            state=self._state,
            placement=placement,
            z_loss=config.z_loss,
            grad_accumulation=config.grad_accumulation,
        )
        self._pending: tuple[int, Measured] | None = None
        self._is_compiled = False
        devices = placement.devices
        self._memory = MemoryMeter(placement.own_devices)
        self._throughput = Throughput(
            tokens_per_step=config.batch_size * config.seq_len,
            flops_per_token=prepared.model.flops_per_token(prepared.vocab_size, config.seq_len),
            peak=devices_peak(devices, config.precision),
        )
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._logged_at = -LOG_SECONDS  # the first step is told at once

    def run(self) -> tuple[NamedArrays, Notes]:
        """The trained parameters, on host 0, and what was measured last. On a signal it saves and raises
        ``RunInterrupted``."""
        out_of_memory = memory_explained(
            lambda: (self._state.params, self._state.optimizer), self._shape(), when="while training"
        )
        with self._metrics, self._trackers, self._writer, out_of_memory:
            try:
                self._run()
                self._writer.finish()
            except StopRequested:
                self._stop()
        params = whole_on_first(self._state.params, self._hosts)
        return named_arrays(self._placement.canonical(params)), self._metrics.notes

    def _shape(self) -> TrainingShape:
        config, mesh = self._config, self._placement.mesh
        return TrainingShape(
            batch_size=config.batch_size,
            seq_len=config.seq_len,
            vocab_size=self._prepared.vocab_size,
            precision=config.precision,
            grad_accumulation=config.grad_accumulation,
            remat=self._placement.compute.remat,
            batch_shards=self._placement.batch_parts,
            fsdp=1 if mesh is None else mesh.shape["fsdp"] * mesh.shape["tensor"],
            logits_rows=CHUNK_TOKENS,
        )

    def _run(self) -> None:
        num_steps = self._prepared.num_steps
        batch = self._batch(self._done)
        if self._leads:
            print(learning_rate_text(self._config.optimizer, num_steps))
            print(decay_counts(self._state.params, self._config.optimizer), flush=True)
        self._report(self._done, "compiling")
        while True:
            self._agreement.check()
            if self._validation.is_due(self._done, self._metrics.notes):
                self._settle()
                self._validate()
            if self._writer.due(self._done, last=self._done == num_steps, is_time=self._agreement.is_time):
                self._settle()  # what is saved has been checked, and its metrics are written
                self._agreement.save_begins()
                with self._throughput.paused():
                    self._writer.save(self._done, self._state)
            if self._done >= num_steps:
                break
            rate = np.float32(self._config.optimizer.learning_rate(self._done, num_steps))
            self._state, measured = self._update(self._state, batch, rate, self._agreement.wishes())
            if not self._is_compiled:
                trim_heap()  # of what compiling took: 200 MB
                self._is_compiled = True
            # While the device computes this step, the host logs the one before and gathers the next batch.
            self._settle()
            self._pending = (self._done, measured)
            self._done += 1
            batch = self._batch(min(self._done, num_steps - 1))
        self._settle()

    def _first_state(self) -> tuple[int, TrainState]:
        config, model, vocab_size = self._config, self._prepared.model, self._prepared.vocab_size
        saved = self._checkpoints.newest()
        if self._leads:  # before the arrays are made, which of a model that is far too large takes all memory
            shapes = state_shapes(model, config.optimizer, vocab_size=vocab_size, placement=self._placement)
            check_disk(
                config.output_path,
                config.checkpoints,
                state_bytes=tree_bytes(shapes),
                final_bytes=tree_bytes(shapes.params) * (2 if config.hf_export else 1),
                num_steps=self._prepared.num_steps,
            )
        state = new_state(model, config.optimizer, vocab_size=vocab_size, seed=config.seed, placement=self._placement)
        if saved is None:
            return 0, state if config.init_from is None else self._begun_from(config.init_from, state)
        step, arrays = saved
        if self._leads:
            _LOG.warning("resumed after step %d of %d", step, self._prepared.num_steps)
        canonical = jax.eval_shape(self._placement.canonical, state)
        loaded = tree_of(arrays, canonical, origin=self._checkpoints.describe_newest())
        return step, self._placement.put_like(self._placement.arranged(loaded), state)

    def _begun_from(self, checkpoint: Checkpoint, state: TrainState) -> TrainState:
        like = jax.eval_shape(self._placement.canonical, state.params)
        file = checkpoint.checked_params_file()
        try:
            first = tree_of(load_arrays(file), like, origin=file)
        except CheckpointError as fault:
            raise CheckpointError(
                f"{fault}. What init_from names has a model of its own: leave out model=, or make the two equal"
            ) from fault
        params = self._placement.arranged(first)
        return state._replace(params=self._placement.put_like(params, state.params))

    def _batch(self, step: int) -> Rows:
        host, hosts = self._placement.share
        batch = self._prepared.data.batch(step, host=host, hosts=hosts)
        if (largest := int(batch.tokens.max())) >= self._prepared.vocab_size:
            raise DataError(
                f"the batch of step {step} holds token id {largest}, but the vocabulary has "
                f"{self._prepared.vocab_size} tokens: tokenize the data again"
            )
        return self._placement.put_own_rows(rows_of(batch), self._config.batch_size)

    def _settle(self) -> None:
        """Wait for the step that was started last, check and log it."""
        if self._pending is None:
            return
        step, measured = self._pending
        self._pending = None
        self._agreement.hear(measured.wishes)
        loss, norm = float(measured.loss), float(measured.gradient_norm)
        if not bool(measured.finite):
            self._judge(step, loss, norm)
            return
        self._throughput.step_done()
        learned = int(measured.learned)
        if learned:  # a batch of answers alone may hold none
            self._recent.append(loss)
        row = step_row(
            step=step + 1,
            loss=loss if learned else None,
            learning_rate=self._config.optimizer.learning_rate(step, self._prepared.num_steps),
            gradient_norm=norm,
            tokens=(step + 1) * self._config.batch_size * self._config.seq_len,
            learned_tokens=learned,
            tokens_per_second=self._throughput.tokens_per_second,
            mfu=self._throughput.mfu,
            memory=self._memory.read(),
        )
        self._write(row)
        note = training_note(fmean(self._recent) if self._recent else None, self._throughput)
        self._report(step + 1, note)
        if time.monotonic() - self._logged_at >= LOG_SECONDS:
            self._log(step + 1, note)

    def _write(self, row: Row) -> None:
        self._metrics.write(row)
        self._trackers.log(row)

    def _judge(self, step: int, loss: float, norm: float) -> None:
        """What becomes of a step whose loss or gradient is not finite. Its update was not applied."""
        self._throughput.step_done()
        what = f"step {step + 1}: loss {loss}, gradient norm {norm}; the update was not applied"  # as in the metrics
        windows = self._prepared.data.described(step)
        skipped = self._metrics.notes.num_skipped
        if self._config.on_nonfinite == "skip" and skipped < self._config.max_skipped_steps:
            self._write({"step": step + 1, "skipped": windows})
            if self._leads:
                _LOG.warning("%s. Windows of the batch: %s. Going on", what, windows)
            return
        limit = f" {skipped} such steps have been skipped before." if skipped else ""
        raise NonFiniteLossError(
            f"{what}. Windows of the batch: {windows}. Last good checkpoint: {self._writer.describe_newest()}."
            f"{limit} Lower the learning rate, or lengthen the warm-up"
        )

    def _report(self, done: int, note: str) -> None:
        if self._leads:
            report(done, self._prepared.num_steps, "steps", note)

    def _log(self, done: int, note: str) -> None:
        """A line for the log of the step, which is what its process prints."""
        self._logged_at = time.monotonic()
        if not self._leads:
            return
        num_steps = self._prepared.num_steps
        print(log_line(done, num_steps, note, self._throughput.seconds_left(num_steps - done)), flush=True)

    def _validate(self) -> None:
        self._report(self._done, "validating")
        with self._throughput.paused():
            rows, note = self._validation.measure(self._done, self._state.params, between=self._agreement.check_now)
            for row in rows:
                self._write(row)
        self._report(self._done, note)
        self._log(self._done, note)

    def _stop(self) -> None:
        number = self._agreement.stop_signal
        assert number is not None
        self._settle()
        path = self._writer.save_now(self._done, self._state)
        self._hosts.end_together()
        raise RunInterrupted(
            f"{number.name} after step {self._done} of {self._prepared.num_steps}; saved {path}, run again to go on",
            128 + number,
        )
