"""The step function on toy text: what it learns, what it leaves behind, what it refuses, how it goes on."""

import dataclasses
import json
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from marin.errors import (
    CheckpointError,
    ConfigurationError,
    DataError,
    DeviceNotFoundError,
    NonFiniteLossError,
    TokenizerMismatchError,
)
from marin.execution.progress import Progress, progress_sink
from marin.training import loop
from marin.training.evaluate import evaluate
from marin.training.optimizers import AdamConfig
from marin.training.prepare import prepare
from marin.training.train import DatasetConfig
from marin.training.trainer import train
from tests.training.caches import cycle, make_cache
from tests.training.runs import train_config

VOCAB = 32
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return make_cache(
        tmp_path_factory.mktemp("caches") / "toy", cycle(VOCAB, 5000), cycle(VOCAB, 500), vocab_size=VOCAB
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    """One whole training: its config and its checkpoint."""
    config = train_config(tmp_path_factory.mktemp("finished") / "out", cache)
    return config, train(config)


def losses(output):
    lines = [json.loads(line) for line in (Path(output) / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line.get("loss"), line.get("validation_loss")) for line in lines]


def parameters(output):
    return (Path(output) / "params.safetensors").read_bytes()


def test_it_learns_and_says_how_well(finished):
    _, checkpoint = finished
    assert checkpoint.initial_validation.loss == pytest.approx(math.log(VOCAB), abs=0.1)
    assert checkpoint.validation.loss < 2.0
    # Each token of the toy text stands for two bytes, and all but the first token are predicted.
    assert checkpoint.validation.tokens == 499
    assert checkpoint.validation.bits_per_byte == pytest.approx(checkpoint.validation.loss / 2 / math.log(2))
    assert (checkpoint.steps, checkpoint.tokens_seen) == (30, 30 * 4 * 16)
    assert checkpoint.epochs == pytest.approx(30 * 4 / (4999 // 16))


def test_what_lies_there_at_the_end_is_the_model_and_its_metrics(finished):
    config, checkpoint = finished
    checkpoint.verify()
    assert sorted(os.listdir(config.output_path)) == ["checkpoint.json", "metrics.jsonl", "params.safetensors"]
    assert [step for step, loss, _ in losses(config.output_path) if loss is not None] == list(range(1, 31))
    assert [step for step, _, loss in losses(config.output_path) if loss is not None] == [0, 10, 20, 30]
    assert checkpoint.metrics()["validation_loss"] == checkpoint.validation.loss
    assert checkpoint.history()[1]["learning_rate"] == config.optimizer.learning_rate(0, 30)


def test_it_reports_no_speed_before_it_is_measured_and_its_log_tells_how_it_goes(cache, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(loop, "LOG_SECONDS", 0.0)
    reported: list[Progress] = []
    with progress_sink(reported.append):
        train(train_config(tmp_path / "out", cache))
    notes = [progress.note for progress in reported]
    assert notes[0] == "compiling"
    assert not any(re.search(r"\b0 tok/s", note) for note in notes)
    assert sum("tok/s" in note for note in notes) > 20
    log = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ")]
    assert re.fullmatch(r"step 0/30  validation loss \d+\.\d+, \d+\.\d+ bits per byte", log[0])
    assert re.fullmatch(r"step 1/30  loss \d+\.\d+", log[1])
    assert re.fullmatch(r"step 2/30  loss \d+\.\d+ · [\d,]+ tok/s", log[2])


def test_a_checkpoint_without_its_parameters_is_told(finished, tmp_path):
    _, checkpoint = finished
    elsewhere = dataclasses.replace(checkpoint)
    object.__setattr__(elsewhere, "path", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"params.safetensors is missing or empty"):
        elsewhere.verify()


def test_the_saved_parameters_evaluate_to_what_the_trainer_measured(finished, cache):
    _, checkpoint = finished
    assert evaluate(checkpoint, cache) == checkpoint.validation


def test_a_text_of_another_tokenizer_is_not_evaluated(finished, tmp_path):
    other = make_cache(tmp_path / "other", cycle(VOCAB, 100), cycle(VOCAB, 50), vocab_size=VOCAB, tokenizer="other")
    with pytest.raises(TokenizerMismatchError, match=r"made by tokenizer other, but .* trained with toy"):
        evaluate(finished[1], other)


def test_the_same_training_gives_the_same_bits(finished, cache, tmp_path):
    again = train_config(tmp_path / "again", cache)
    train(again)
    assert parameters(again.output_path) == parameters(finished[0].output_path)
    assert losses(again.output_path) == losses(finished[0].output_path)


def test_another_seed_gives_another_training(finished, cache, tmp_path):
    other = train_config(tmp_path / "other", cache, seed=1, num_train_steps=1, eval_every=None)
    train(other)
    assert losses(other.output_path)[1] != losses(finished[0].output_path)[1]


def test_an_epoch_is_as_many_steps_as_the_data_holds_batches(cache, tmp_path):
    config = train_config(tmp_path / "epoch", cache, num_train_steps=None, num_train_epochs=0.1, eval_every=None)
    checkpoint = train(config)
    assert checkpoint.steps == 7  # a tenth of 312 windows in batches of 4
    assert checkpoint.epochs == pytest.approx(28 / 312)


def test_a_part_of_an_epoch_is_not_rounded_down_by_binary_fractions(tmp_path):
    hundred = make_cache(tmp_path / "hundred", cycle(VOCAB, 1601), vocab_size=VOCAB)
    config = train_config(tmp_path / "out", hundred, eval_every=None, batch_size=1)
    prepared = prepare(dataclasses.replace(config, num_train_steps=None, num_train_epochs=0.29))
    assert prepared.num_steps == 29  # 0.29 * 100 is 28.999999999999996


def start(config, folder, wait_after):
    """The training in a process of its own, which waits after so many steps."""
    file = folder / "config.json"
    file.write_bytes(msgspec.json.encode(config))
    command = [sys.executable, "-m", "tests.training.runs", str(file), str(wait_after)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def read_until(process, wanted):
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith(wanted):
            return seen
    raise AssertionError(f"ended with {process.wait()} before {wanted!r}: {''.join(seen)}")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_killed_and_resumed_in_another_process_it_gives_the_same_bits(precision, cache, tmp_path):
    whole = train_config(tmp_path / "whole", cache, precision=precision, eval_every=20)
    train(whole)
    halved = dataclasses.replace(whole, output_path=str(tmp_path / "halved"), checkpoint_seconds=0.0)
    Path(halved.output_path).mkdir()
    with start(halved, tmp_path, wait_after=13) as process:
        read_until(process, "13 loss")
        process.send_signal(signal.SIGKILL)
    assert not (Path(halved.output_path) / "params.safetensors").exists()
    with start(halved, tmp_path, wait_after=-1) as process:
        output = process.stdout.read()
    assert process.returncode == 0, output
    assert "resumed after step 1" in output
    assert parameters(halved.output_path) == parameters(whole.output_path)
    assert losses(halved.output_path) == losses(whole.output_path)


def test_sigterm_saves_and_the_next_run_goes_on(finished, cache, tmp_path):
    config = train_config(tmp_path / "out", cache)
    with start(config, tmp_path, wait_after=17) as process:
        read_until(process, "17 loss")
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode != 0
    [saved] = os.listdir(tmp_path / "out" / "resume")
    assert saved in ("step-000000017", "step-000000018")
    train(config)
    assert parameters(config.output_path) == parameters(finished[0].output_path)
    assert losses(config.output_path) == losses(finished[0].output_path)


def test_a_finished_training_is_not_done_again(finished):
    config, checkpoint = finished
    before = parameters(config.output_path)
    os.utime(Path(config.output_path) / "params.safetensors", (1, 1))
    assert train(config) == checkpoint
    assert os.stat(Path(config.output_path) / "params.safetensors").st_mtime == 1
    assert parameters(config.output_path) == before


def test_killed_while_it_tidies_up_the_next_run_leaves_no_rolling_checkpoint_in_the_artifact(finished, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(finished[0].output_path, output)
    (output / "resume" / "step-000000030").mkdir(parents=True)
    train(dataclasses.replace(finished[0], output_path=str(output)))
    assert sorted(os.listdir(output)) == ["checkpoint.json", "metrics.jsonl", "params.safetensors"]


def test_a_loss_that_is_not_finite_stops_the_training_with_step_and_remedy(cache, tmp_path):
    wild = AdamConfig(lr=1e30, warmup=0, clip_norm=None)
    config = train_config(tmp_path / "wild", cache, optimizer=wild, eval_every=30)
    with pytest.raises(
        NonFiniteLossError, match=r"step \d+: loss .* not applied.*Last good checkpoint: none yet.*Lower"
    ):
        train(config)
    assert not (tmp_path / "wild" / "params.safetensors").exists()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"device": "cuda:0"}, DeviceNotFoundError, r"there is no cuda:0 .*present is cpu:0.*jax\[cuda"),
        ({"device": "tpu"}, DeviceNotFoundError, r"there is no tpu .*present is cpu:0"),
        ({"device": "cpu:7"}, DeviceNotFoundError, r"there is no cpu:7 .*present is cpu:0"),
        ({"batch_size": 400}, DataError, r"holds 312 windows of seq_len=16 tokens, fewer than one batch of 400"),
        (
            {"num_train_steps": None, "num_train_epochs": 0.001},
            ConfigurationError,
            r"num_train_epochs=0.001 of 312 windows is less than one batch of 4",
        ),
    ],
)
def test_what_can_not_be_trained_is_told_before_the_first_step(changes, error, message, cache, tmp_path):
    config = train_config(tmp_path / "out", cache, **changes)
    with pytest.raises(error, match=message):
        train(config)
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


def test_ids_that_the_vocabulary_lacks_are_told_before_the_first_step(tmp_path):
    ids = np.full(500, 3)
    ids[77] = 40
    bad = make_cache(tmp_path / "bad", ids, vocab_size=VOCAB, true_vocab_size=50)
    with pytest.raises(DataError, match=r"train split of .*bad holds token id 40, but the vocabulary has 32 tokens"):
        train(train_config(tmp_path / "out", bad, eval_every=None))


def test_data_sets_of_two_tokenizers_are_told_before_the_first_step(cache, tmp_path):
    other = make_cache(tmp_path / "other", cycle(VOCAB, 500), vocab_size=VOCAB, tokenizer="other")
    with pytest.raises(TokenizerMismatchError, match=r"tokenizer other, but .* by toy: one model needs one tokenizer"):
        train(train_config(tmp_path / "out", cache, other))


def test_a_validation_without_text_is_told_before_the_first_step(tmp_path):
    bare = make_cache(tmp_path / "bare", cycle(VOCAB, 500), vocab_size=VOCAB)
    short = make_cache(tmp_path / "short", cycle(VOCAB, 500), cycle(VOCAB, 1), vocab_size=VOCAB)
    with pytest.raises(DataError, match=r"eval_every=10, but none of the data sets has a validation split"):
        train(train_config(tmp_path / "out", bare))
    with pytest.raises(DataError, match=r"validation split of .*short has 1 tokens: there is nothing to predict"):
        train(train_config(tmp_path / "out", short))
    with pytest.raises(DataError, match=r"validation overlaps the training"):
        train(train_config(tmp_path / "out", bare, validation=(bare,)))


def test_a_copy_of_the_training_data_is_no_validation(cache, tmp_path):
    bare = make_cache(tmp_path / "bare", cycle(VOCAB, 500), vocab_size=VOCAB)
    copy = make_cache(tmp_path / "copy", cycle(VOCAB, 500), vocab_size=VOCAB)
    held_out = make_cache(tmp_path / "held", cycle(VOCAB, 600, seed=1), cycle(VOCAB, 500), vocab_size=VOCAB)
    for validation in (copy, held_out):
        with pytest.raises(DataError, match=r"validation overlaps the training: .*(copy|held).* is also in .*bare"):
            prepare(train_config(tmp_path / "out", bare, validation=(validation,)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": cycle(VOCAB, 500, seed=1)}, r"toy holds other tokens than the artifact says"),
        ({"tokenizer": "other"}, r"toy was made by tokenizer other, the artifact says toy"),
    ],
)
def test_a_cache_that_was_replaced_since_it_was_recorded_is_told_before_the_first_step(changes, message, tmp_path):
    recorded = make_cache(tmp_path / "toy", cycle(VOCAB, 500), vocab_size=VOCAB)
    shutil.rmtree(tmp_path / "toy")
    make_cache(tmp_path / "toy", **{"train": cycle(VOCAB, 500), "vocab_size": VOCAB, **changes})
    with pytest.raises(DataError, match=message):
        prepare(train_config(tmp_path / "out", recorded, eval_every=None))


def test_a_data_set_of_weight_zero_can_be_the_validation(cache, tmp_path):
    bare = make_cache(tmp_path / "bare", cycle(VOCAB, 500, seed=1), vocab_size=VOCAB)
    datasets = (DatasetConfig(cache=cache, weight=1.0), DatasetConfig(cache=bare, weight=0.0))
    prepared = prepare(train_config(tmp_path / "out", datasets=datasets, validation=(bare,)))
    assert [reader.num_tokens for reader in prepared.validation] == [500]


def test_without_validation_data_it_trains_without_validation(tmp_path):
    bare = make_cache(tmp_path / "bare", cycle(VOCAB, 500), vocab_size=VOCAB)
    checkpoint = train(train_config(tmp_path / "out", bare, eval_every=None, num_train_steps=2))
    assert checkpoint.validation is None
    assert checkpoint.initial_validation is None
    assert [step for step, _, _ in losses(tmp_path / "out")] == [1, 2]


def test_another_cache_can_be_the_validation(cache, tmp_path):
    other = make_cache(tmp_path / "other", cycle(VOCAB, 200), vocab_size=VOCAB)
    bare = make_cache(tmp_path / "bare", cycle(VOCAB, 500, seed=1), vocab_size=VOCAB)
    config = train_config(tmp_path / "out", bare, validation=(cache, other), num_train_steps=1)
    assert train(config).validation.tokens == 499 + 199


def test_settings_that_differ_from_those_of_the_checkpoint_are_refused(cache, tmp_path, caplog):
    config = train_config(tmp_path / "out", cache)
    with start(dataclasses.replace(config, checkpoint_seconds=0.0), tmp_path, wait_after=5) as process:
        read_until(process, "5 loss")
        process.kill()
    longer = dataclasses.replace(config, optimizer=AdamConfig(lr=2e-2))
    with pytest.raises(CheckpointError, match=r"optimizer.lr: 0.01 → 0.02.*or remove .*resume to begin at step 0"):
        train(longer)
    lighter = dataclasses.replace(config, datasets=(DatasetConfig(cache=cache, weight=2.0),))
    with pytest.raises(CheckpointError, match=r"datasets\[0\].weight: 1.0 → 2.0"):
        train(lighter)
    with caplog.at_level(logging.WARNING):
        train(config)
    assert "resumed after step" in caplog.text
