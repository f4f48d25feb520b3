"""The step function on toy text: what it learns, what it leaves behind, what it refuses, how it goes on."""

import dataclasses
import functools
import json
import logging
import math
import os
import re
import shutil
import signal
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import optax
import pytest

from marin.errors import (
    CheckpointError,
    ConfigurationError,
    DataError,
    DeviceNotFoundError,
    MarinError,
    NonFiniteLossError,
    NotEnoughResourcesError,
    TokenizerMismatchError,
)
from marin.execution.artifact import at_path
from marin.execution.progress import Progress, progress_sink
from marin.processing.mixture.mixture import MixtureStage
from marin.processing.mixture.windows import gather
from marin.processing.tokenize.open_stream import open_split
from marin.training import loop
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.evaluate import evaluate
from marin.training.mesh_config import MeshConfig
from marin.training.models.compute import Compute
from marin.training.optimizers import AdamConfig
from marin.training.prepare import prepare
from marin.training.trackers import running
from marin.training.trackers.configs import TensorboardConfig
from marin.training.train import DatasetConfig
from marin.training.trainer import train
from marin.training.update import batch_loss, rows_of
from tests.training.caches import cycle, make_cache
from tests.training.runs import read_until, start, train_config
from tests.training.trackers.sinks import SinkConfig

VOCAB = 32


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


def metrics(output):
    return [json.loads(line) for line in (Path(output) / "metrics.jsonl").read_text().splitlines()]


def losses(output):
    return [(line["step"], line.get("loss"), line.get("validation_loss")) for line in metrics(output)]


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
    assert sorted(os.listdir(config.output_path)) == ["checkpoint.json", "hf", "metrics.jsonl", "params.safetensors"]
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
    assert re.fullmatch(r"step 2/30  loss \d+\.\d+ · [\d,]+ tok/s · .+ left", log[2])
    assert re.fullmatch(r"step 30/30  loss \d+\.\d+ · [\d,]+ tok/s", log[-2])


def test_a_checkpoint_without_its_parameters_is_told(finished, tmp_path):
    _, checkpoint = finished
    elsewhere = dataclasses.replace(checkpoint)
    object.__setattr__(elsewhere, "path", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"params.safetensors is missing or empty"):
        elsewhere.verify()


def test_metrics_that_were_damaged_are_told_by_line(finished, tmp_path):
    whole = Path(finished[1].path, "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_bytes(b"".join([*whole[:2], whole[2][:-5]]))
    elsewhere = dataclasses.replace(finished[1])
    object.__setattr__(elsewhere, "path", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"metrics\.jsonl, line 3 can't be read .*train again"):
        elsewhere.history()


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


def test_sigterm_saves_and_the_next_run_goes_on(finished, cache, tmp_path):
    config = train_config(tmp_path / "out", cache)
    with start(tmp_path, config, wait_after=17) as process:
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


def test_a_finished_training_that_was_not_published_is_not_taken_for_one_of_another_recipe(finished, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(finished[0].output_path, output)
    config = dataclasses.replace(finished[0], output_path=str(output))
    with pytest.raises(CheckpointError, match=r"checkpoint.json was made under other settings: seed: 0 → 1\. Restore"):
        train(dataclasses.replace(config, seed=1))
    assert train(dataclasses.replace(config, hf_export=None)).hf_dir is None
    assert json.loads((Path(train(config).hf_dir) / "config.json").read_text())["model_type"] == "llama"
    assert parameters(output) == parameters(finished[0].output_path)


def test_killed_while_it_tidies_up_the_next_run_leaves_no_rolling_checkpoint_in_the_artifact(finished, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(finished[0].output_path, output)
    (output / "resume" / "step-000000030").mkdir(parents=True)
    train(dataclasses.replace(finished[0], output_path=str(output)))
    assert sorted(os.listdir(output)) == ["checkpoint.json", "hf", "metrics.jsonl", "params.safetensors"]


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
        (
            {"mesh": MeshConfig(fsdp=4)},
            DeviceNotFoundError,
            r"fsdp=4 takes 4 devices, but what JAX sees is cpu:0: .* or set XLA_FLAGS=\S+device_count=4, which",
        ),
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
    other = make_cache(tmp_path / "other", cycle(VOCAB, 600, seed=1), vocab_size=VOCAB, tokenizer="other")
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
    assert [reader.num_tokens for reader in prepared.validation.values()] == [500]


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
    with start(tmp_path, config, wait_after=5) as process:
        read_until(process, "5 loss")
        process.terminate()
        process.stdout.read()
    longer = dataclasses.replace(config, optimizer=AdamConfig(lr=2e-2))
    with pytest.raises(
        CheckpointError, match=r"optimizer.lr: 0.01 → 0.02.*begin at step 0 under this one, remove .*out"
    ):
        train(longer)
    lighter = dataclasses.replace(config, datasets=(DatasetConfig(cache=cache, weight=2.0),))
    with pytest.raises(CheckpointError, match=r"datasets\[0\].weight: 1.0 → 2.0"):
        train(lighter)
    with caplog.at_level(logging.WARNING):
        train(config)
    assert "resumed after step" in caplog.text


def test_everything_that_is_wrong_with_the_data_is_told_in_one_error(cache, tmp_path):
    bad = np.full(500, 3)
    bad[77] = 40
    datasets = tuple(
        DatasetConfig(cache=each, weight=weight, name=name)
        for name, weight, each in (
            ("good", 1.0, cache),
            ("small", 1.0, make_cache(tmp_path / "small", cycle(VOCAB, 9), vocab_size=VOCAB)),
            ("rare", 1e-9, make_cache(tmp_path / "rare", cycle(VOCAB, 500, seed=1), vocab_size=VOCAB)),
            ("foreign", 1.0, make_cache(tmp_path / "foreign", cycle(9, 500, seed=2), vocab_size=9, tokenizer="other")),
            ("bad", 1.0, make_cache(tmp_path / "bad", bad, vocab_size=VOCAB, true_vocab_size=50)),
            ("gone", 1.0, make_cache(tmp_path / "gone", cycle(VOCAB, 500, seed=3), vocab_size=VOCAB)),
        )
    )
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(DataError) as caught:
        train(train_config(tmp_path / "out", datasets=datasets))
    first, *faults = str(caught.value).splitlines()
    assert first == "the data of the training: 5 faults"
    for wanted in (
        r"small has 9 training tokens, fewer than the 17 of one window",
        r"the weight of rare gives it less than one in 2048 sequences",
        r"foreign was made by tokenizer other, but .*toy by toy",
        r"train split of .*bad holds token id 40, but the vocabulary has 32 tokens",
        r"gone holds no token cache",
    ):
        assert [fault for fault in faults if re.search(wanted, fault)], (wanted, faults)
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


def test_the_budget_is_printed_before_the_first_step_and_kept_with_the_number_of_the_formula(cache, tmp_path, capsys):
    other = make_cache(tmp_path / "other", cycle(VOCAB, 1000, seed=1), vocab_size=VOCAB)
    datasets = (
        DatasetConfig(cache=cache, weight=3.0, name="tokenized/poems@2026.07.01"),
        DatasetConfig(cache=other, weight=1.0, name="tokenized/prose@2026.07.01", max_train_batches=2),
    )
    checkpoint = train(train_config(tmp_path / "out", datasets=datasets))
    log = capsys.readouterr().out
    assert log.index("tokenized/prose@2026.07.01") < log.index("step 0/30")
    assert checkpoint.mixture_formula == 1
    poems, prose = checkpoint.budget
    assert (prose.tokens, prose.windows, prose.weights, prose.shares) == (1000, 8, (1.0,), (0.25,))
    assert poems.trained_tokens + prose.trained_tokens == checkpoint.tokens_seen
    assert prose.epochs == prose.sequences / 8


def test_stages_change_what_is_trained_on_from_their_step_on(cache, finished, tmp_path):
    other = make_cache(tmp_path / "other", cycle(VOCAB, 1000, seed=1), vocab_size=VOCAB)
    datasets = (DatasetConfig(cache=cache, weight=1.0), DatasetConfig(cache=other, weight=0.0))
    config = train_config(
        tmp_path / "out", datasets=datasets, stages=(MixtureStage(start_step=12, weights=(0.0, 1.0)),)
    )
    checkpoint = train(config)
    assert [row.sequences for row in checkpoint.budget] == [12 * 4, 18 * 4]
    plain, staged = (
        [loss for _, loss, _ in losses(each.output_path) if loss is not None] for each in (finished[0], config)
    )
    assert staged[:12] == plain[:12]
    assert staged[12:] != plain[12:]


def test_borders_of_documents_can_be_left_out_of_the_loss(tmp_path):
    cache = make_cache(tmp_path / "two", cycle(VOCAB, 33), vocab_size=VOCAB, documents=[20, 13])
    config = train_config(tmp_path / "out", cache, eval_every=None, batch_size=2)
    assert prepare(config).data.batch(0).loss_mask.sum() == 2 * 16
    assert prepare(dataclasses.replace(config, mask_boundaries=True)).data.batch(0).loss_mask.sum() == 2 * 16 - 1


def test_only_what_a_cache_says_is_learned_and_validated(tmp_path):
    ids, held_out = cycle(VOCAB, 5000), cycle(VOCAB, 500)
    cache = make_cache(tmp_path / "chat", ids, held_out, vocab_size=VOCAB, learned=lambda tokens: tokens < 8)
    config = train_config(tmp_path / "out", cache)
    batch = prepare(config).data.batch(3)
    assert (batch.loss_mask == (batch.tokens[:, 1:] < 8)).all()
    checkpoint = train(config)
    assert checkpoint.validation.tokens == (held_out[1:] < 8).sum()
    assert checkpoint.validation.loss < 1.5  # of eight tokens only, which are soon known


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noisy:
    transformation: ClassVar[str] = f"{__name__}:noisy"

    def learning_rate(self, step, num_steps):
        return 0.1


def noisy(config):
    return optax.add_noise(0.1, 0.5, key=0)


def test_an_optimizer_that_keeps_a_random_key_is_told_what_to_keep(cache, tmp_path):
    with pytest.raises(ConfigurationError, match=r"Noisy: what .*:noisy' makes keeps rng_key as key.*key_data\(key\)"):
        train(train_config(tmp_path / "out", cache, optimizer=Noisy()))


def test_an_evaluation_that_changes_the_tree_of_parameters_changes_no_training(cache, tmp_path):
    plain = train(train_config(tmp_path / "plain", cache, num_train_steps=3, eval_every=1))
    evals = ("tests.training.evaluations:greedy",)
    looked_at = train(train_config(tmp_path / "looked", cache, num_train_steps=3, eval_every=1, evals=evals))
    assert looked_at.params_sha256 == plain.params_sha256


def test_what_is_trained_on_documents_apart_is_validated_on_documents_apart(cache, tmp_path):
    ids = cycle(VOCAB, 4 * 32 * 7 + 1, seed=5)
    short = make_cache(tmp_path / "short", ids, vocab_size=VOCAB, documents=[7] * (len(ids) // 7) + [1])
    checkpoint = train(train_config(tmp_path / "out", cache, validation=(short,), packing="segmented"))
    stream, places = open_split(short, "train"), np.arange((len(ids) - 1) // checkpoint.seq_len)
    compute = Compute(dtype=jax.numpy.dtype("float32"))

    def loss(*, segments):
        rows = gather([stream], 0 * places, places, seq_len=checkpoint.seq_len, segments=segments)
        sums = batch_loss(checkpoint.load_params(), rows_of(rows), checkpoint.config, compute)
        assert int(sums.learned) == len(ids) - 1
        return float(sums.nats) / (len(ids) - 1)

    assert checkpoint.validation.loss == pytest.approx(loss(segments=True), rel=1e-5)
    assert evaluate(checkpoint, short, "train").loss == pytest.approx(checkpoint.validation.loss, rel=1e-6)
    assert loss(segments=False) != pytest.approx(loss(segments=True), rel=1e-3)


def test_a_validation_that_masks_everything_is_told(tmp_path):
    ids = cycle(VOCAB, 5000)

    def all_of_a_long_split(tokens):
        return np.full(len(tokens), len(tokens) > 100)

    cache = make_cache(tmp_path / "chat", ids, ids[:100], vocab_size=VOCAB, learned=all_of_a_long_split)
    with pytest.raises(DataError, match=r"validation split of .*chat masks all its tokens: nothing is predicted"):
        train(train_config(tmp_path / "out", cache))


def test_data_that_masks_everything_is_told_before_it_is_trained_on(tmp_path):
    cache = make_cache(tmp_path / "chat", cycle(VOCAB, 500), vocab_size=VOCAB, learned=lambda tokens: tokens < 0)
    with pytest.raises(DataError, match=r"loss mask of .*chat leaves nothing to learn: tokenize it again"):
        prepare(train_config(tmp_path / "out", cache, eval_every=None))


def test_pairs_of_texts_are_not_trained_on_as_texts(cache, tmp_path):
    pairs = dataclasses.replace(cache, document_format="preference")
    object.__setattr__(pairs, "path", cache.path)
    with pytest.raises(ConfigurationError, match=r"pairs of a chosen and a rejected text.*train on a cache of texts"):
        prepare(train_config(tmp_path / "out", pairs))


def test_bits_per_byte_of_answers_alone_are_not_told(tmp_path):
    ids = cycle(VOCAB, 5000)
    chats = make_cache(
        tmp_path / "chat", ids, ids[:100], vocab_size=VOCAB, learned=lambda tokens: np.arange(len(tokens)) % 3 > 0
    )
    found = train(train_config(tmp_path / "out", chats, num_train_steps=1)).validation
    assert (found.tokens, found.bits_per_byte) == (66, None)
    [line] = [line for line in metrics(tmp_path / "out") if "validation_loss" in line and line["step"]]
    assert "bits_per_byte" not in line
    assert line[f"validation/{chats.path}/tokens"] == 66


def test_weights_that_would_never_be_used_are_told(cache, tmp_path):
    other = make_cache(tmp_path / "other", cycle(VOCAB, 500, seed=1), vocab_size=VOCAB)
    late = (MixtureStage(start_step=30, weights=(0.0, 1.0)),)
    datasets = (DatasetConfig(cache=cache, weight=1.0), DatasetConfig(cache=other, weight=0.0, name="other"))
    with pytest.raises(ConfigurationError) as caught:
        prepare(train_config(tmp_path / "out", datasets=datasets, stages=late))
    assert "the training has 30 steps, but weights of the mixture begin at step 30: train longer" in str(caught.value)
    assert "in 30 steps of 4 sequences other gives none: train longer" in str(caught.value)


def test_a_bad_batch_can_be_skipped_so_many_times(cache, tmp_path, monkeypatch):
    real = loop.make_update

    def failing(*args, **kwargs):
        update = real(*args, **kwargs)

        def at(state, rows, rate, wishes):
            after, measured = update(state, rows, rate, wishes)
            return after, measured._replace(finite=measured.finite & (float(rate) != failing.bad))

        return at

    monkeypatch.setattr(loop, "make_update", failing)
    config = train_config(tmp_path / "out", cache, on_nonfinite="skip", max_skipped_steps=1, eval_every=None)
    failing.bad = float(np.float32(config.optimizer.learning_rate(3, 30)))
    train(dataclasses.replace(config, evals_per_run=1))
    [line] = [line for line in metrics(tmp_path / "out") if "skipped" in line]
    assert line["step"] == 4
    assert cache.path in line["skipped"]
    same_rate = AdamConfig(lr=1e-2, schedule="constant", warmup=0)
    failing.bad = float(np.float32(1e-2))
    with pytest.raises(NonFiniteLossError, match=r"step 2: .* 1 such steps have been skipped before"):
        train(train_config(tmp_path / "again", cache, on_nonfinite="skip", max_skipped_steps=1, optimizer=same_rate))


def test_a_disk_that_is_too_small_is_told_before_any_array_is_made(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "check_disk", functools.partial(loop.check_disk, free=lambda path: 1000))
    monkeypatch.setattr(loop, "new_state", lambda *args, **kwargs: pytest.fail("arrays were made"))
    with pytest.raises(NotEnoughResourcesError, match=r"the training will need"):
        train(train_config(tmp_path / "out", cache))


def test_a_training_of_another_formula_is_refused(cache, tmp_path):
    with pytest.raises(ConfigurationError, match=r"mixture formula 7, this Marin has 1: .*under a new version"):
        train(train_config(tmp_path / "out", cache, mixture_formula=7))


def test_a_training_begins_with_the_parameters_of_another(finished, cache, tmp_path):
    config, start = finished
    goes_on = train_config(tmp_path / "out", cache, init_from=start, model=None, num_train_steps=1)
    checkpoint = train(goes_on)
    # The same parameters, so the same validation; a rate of its own, so an update of its own.
    assert checkpoint.initial_validation == start.validation
    assert checkpoint.config == start.config == config.model
    assert parameters(goes_on.output_path) != parameters(config.output_path)


def test_a_start_that_was_damaged_is_told(finished, cache, tmp_path):
    _, start = finished
    damaged = at_path(start, str(tmp_path / "damaged"))
    shutil.copytree(start.path, damaged.path)
    content = bytearray((path := Path(damaged.path, "params.safetensors")).read_bytes())
    content[-100] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged/params.safetensors is not what was written"):
        train(train_config(tmp_path / "out", cache, init_from=damaged, model=None, num_train_steps=1))
    with pytest.raises(CheckpointError, match=r"damaged/params.safetensors is not what was written"):
        damaged.load_params()


def test_a_start_that_does_not_fit_is_told(finished, cache, tmp_path):
    _, start = finished
    larger = dataclasses.replace(start.config, hidden_dim=32)
    with pytest.raises(
        CheckpointError, match=r"params.safetensors: embed_tokens is float32\[32, 16\], but .* leave out model="
    ):
        train(train_config(tmp_path / "larger", cache, init_from=start, model=larger))
    with pytest.raises(ConfigurationError, match=r"seq_len=128 is longer than the model of init_from takes"):
        prepare(train_config(tmp_path / "long", cache, init_from=start, model=None, seq_len=128))
    other = make_cache(tmp_path / "other", cycle(VOCAB, 5000), vocab_size=VOCAB, tokenizer="another")
    with pytest.raises(TokenizerMismatchError, match=r"made by tokenizer another, but the model of init_from"):
        prepare(train_config(tmp_path / "out", other, init_from=start, eval_every=None))
    wide = make_cache(tmp_path / "wide", cycle(VOCAB, 5000), vocab_size=VOCAB + 1)
    with pytest.raises(MarinError, match=r"tokens have a vocabulary of 33, but the model of init_from, .* has 32"):
        prepare(train_config(tmp_path / "out", wide, init_from=start, eval_every=None))


def test_evaluations_of_the_author_are_asked_with_the_validation(cache, tmp_path):
    config = train_config(tmp_path / "out", cache, evals=("tests.training.evaluations:follows",), num_train_steps=20)
    train(config)
    asked = [line for line in metrics(tmp_path / "out") if "evals/follows/share" in line]
    assert [(line["step"], line["evals/follows/step"]) for line in asked] == [(0, 0), (10, 10), (20, 20)]
    bare = make_cache(tmp_path / "bare", cycle(VOCAB, 500), vocab_size=VOCAB)
    alone = train_config(tmp_path / "alone", bare, evals=config.evals, num_train_steps=20, eval_every=None)
    train(dataclasses.replace(alone, evals_per_run=1))
    assert [line["step"] for line in metrics(tmp_path / "alone") if "evals/follows/share" in line] == [0, 20]


def test_an_evaluation_that_fails_costs_no_training(cache, tmp_path, caplog):
    evals = ("tests.training.evaluations:fails_after_12", "tests.training.evaluations:follows")
    checkpoint = train(train_config(tmp_path / "out", cache, evals=evals, num_train_steps=20, eval_every=5))
    assert checkpoint.steps == 20
    asked = [line for line in metrics(tmp_path / "out") if "evals/follows/step" in line]
    assert [line["step"] for line in asked] == [0, 5, 10, 15, 20]
    assert [line.get("evals/fails_after_12/step") for line in asked] == [0, 5, 10, None, None]
    assert [line.get("evals/fails_after_12/failed") for line in asked] == [None, None, None, 1, 1]
    assert asked[0]["evals/fails_after_12/unknown"] is None  # a number that is not finite
    assert [line for line in caplog.messages if "fails_after_12 failed after step" in line] == [
        f"evals: fails_after_12 failed after step {step}: the training goes on" for step in (15, 20)
    ]
    assert "I can't judge this" in caplog.text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.training.evaluations:missing", r"evals: 'tests.training.evaluations:missing' can't be imported"),
        ("tests.training.evaluations:wrong", r"evals: wrong returned 3: return a dict from names to numbers"),
    ],
)
def test_an_evaluation_that_can_not_be_asked_is_told(cache, tmp_path, name, message):
    with pytest.raises(ConfigurationError, match=message):
        train(train_config(tmp_path / "out", cache, evals=(name,)))


def test_metrics_go_to_trackers_whatever_others_of_them_do(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CLOSE_SECONDS", 0.5)
    trackers = TensorboardConfig(), SinkConfig(hangs="close"), SinkConfig(hangs="open"), SinkConfig(raises="log")
    config = train_config(tmp_path / "out", cache, trackers=trackers, num_train_steps=3, eval_every=3)
    checkpoint = train(config)
    [events] = (tmp_path / "out" / "tensorboard").iterdir()
    assert events.stat().st_size > 100
    assert checkpoint.metrics()["step"] == 3


def test_permanent_checkpoints_stay_and_can_be_gone_on_from(cache, tmp_path):
    config = train_config(tmp_path / "out", cache, checkpoints=CheckpointPolicy(every=10))
    train(config)
    assert sorted(os.listdir(tmp_path / "out" / "checkpoints")) == [f"step-{step:09}" for step in (10, 20, 30)]
    assert not (tmp_path / "out" / "resume").exists()
