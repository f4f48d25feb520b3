"""A training that was killed and gone on with has the bits of one that never stopped, its optimizer and losses too."""

import dataclasses
import json
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from marin.processing.mixture.batches import TrainingData
from marin.processing.mixture.mixture import MixtureStage
from marin.training.checkpoint_policy import CheckpointPolicy
from marin.training.mesh_config import MeshConfig
from marin.training.optimizers import LionConfig
from marin.training.prepare import prepare
from marin.training.train import DatasetConfig
from marin.training.trainer import train
from tests.processing.mixture.streams import data
from tests.training.caches import cycle, make_cache
from tests.training.runs import read_until, start, train_config, wait_for_checkpoint

VOCAB = 32
STEPS = 30
KILLED_AFTER = 13
LAST = f"checkpoints/step-{STEPS:09}/state-00000-of-00001.safetensors"
"""All that changes while training, as it was after the last step."""

pytestmark = pytest.mark.timeout(1800)  # many processes, each of which loads JAX


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Two data sets of short documents, of which a part is learned; the second comes in on the way."""
    folder = tmp_path_factory.mktemp("caches")
    documents = [23] * 100 + [2700]
    caches = [
        make_cache(
            folder / name,
            cycle(VOCAB, 5000, seed=seed),
            cycle(VOCAB, 300, seed=seed + 10),
            vocab_size=VOCAB,
            documents=documents,
            learned=lambda ids: ids % 5 > 0,
        )
        for seed, name in enumerate(("poems", "prose"))
    ]
    return [DatasetConfig(cache=cache, weight=weight) for cache, weight in zip(caches, (3.0, 0.0), strict=True)]


def config_of(output, datasets, **changes):
    """The data changes at step 20, behind the kill; the state of the last step is kept."""
    output.mkdir(parents=True)
    stages = (MixtureStage(start_step=20, weights=(1.0, 1.0)),)
    choices = {"num_train_steps": STEPS, "eval_every": 15, "checkpoints": CheckpointPolicy(every=STEPS), **changes}
    return train_config(output, datasets=tuple(datasets), stages=stages, batch_size=8, **choices)


def killed(folder, *configs, devices=1):
    """All but the last of ``configs`` are trained; that one is killed with a checkpoint and without a result."""
    output = Path(configs[-1].output_path)
    halved = dataclasses.replace(configs[-1], checkpoints=CheckpointPolicy(seconds=0, every=STEPS))
    with start(folder, *configs[:-1], halved, devices=devices, wait_after=KILLED_AFTER) as process:
        read_until(process, f"{KILLED_AFTER} loss")
        wait_for_checkpoint(output)
        process.send_signal(signal.SIGKILL)
    assert not (output / LAST).exists()


def told(output):
    """Each line of the metrics, without what time and memory it took."""
    lines = (Path(output) / "metrics.jsonl").read_text().splitlines()
    measured = {"tokens_per_second", "resident_bytes"}
    return [{key: value for key, value in json.loads(line).items() if key not in measured} for line in lines]


def assert_the_same_bits(one, other):
    assert told(one) == told(other)
    for name in ("params.safetensors", LAST):
        assert (Path(one) / name).read_bytes() == (Path(other) / name).read_bytes(), name
    state = load_file(Path(one) / LAST)
    assert {name.split(".")[0] for name in state} == {"params", "optimizer"}, sorted(state)


def assert_equal_to_rounding(one, other):
    for mine, theirs in zip(told(one), told(other), strict=True):
        assert mine == pytest.approx(theirs, rel=0, abs=1e-6), mine["step"]
    mine, theirs = load_file(Path(one) / LAST), load_file(Path(other) / LAST)
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-6, err_msg=name)


CHOICES = {
    "float32": {},
    "bfloat16": {"precision": "bfloat16", "z_loss": 1e-3},
    "in pieces": {"grad_accumulation": 2, "optimizer": LionConfig(lr=1e-3)},
    "segmented": {"packing": "segmented", "mask_boundaries": True, "seed": 7},
}


@pytest.mark.parametrize("name", CHOICES)
def test_killed_and_gone_on_with_in_another_process_it_gives_the_same_bits(name, datasets, tmp_path, caplog):
    whole = config_of(tmp_path / "whole", datasets, **CHOICES[name])
    halved = config_of(tmp_path / "halved", datasets, **CHOICES[name])
    killed(tmp_path, halved)
    train(whole)
    train(halved)
    assert re.search(r"resumed after step ([1-9]|1\d) of 30", caplog.text)
    assert_the_same_bits(halved.output_path, whole.output_path)


@pytest.fixture(scope="module")
def on_eight(datasets, tmp_path_factory):
    """Trainings on eight devices and on one, whole, and gone on with on as many and on others."""
    folder = tmp_path_factory.mktemp("eight")
    eight = {"mesh": MeshConfig(fsdp=8)}
    whole, halved, narrowed = (config_of(folder / name, datasets, **eight) for name in ("whole", "halved", "narrowed"))
    alone, widened = (config_of(folder / name, datasets) for name in ("alone", "widened"))
    killed(folder, whole, halved, devices=8)
    # What stopped there goes on from the same state in two ways.
    shutil.copytree(halved.output_path, narrowed.output_path, dirs_exist_ok=True)
    killed(folder, widened)
    train(dataclasses.replace(narrowed, mesh=None))
    train(alone)
    with start(folder, halved, dataclasses.replace(widened, **eight), devices=8) as process:
        output = process.stdout.read()
    assert process.returncode == 0, output
    assert len(re.findall(r"resumed after step [1-9]", output)) == 2
    return folder


def test_also_on_eight_devices(on_eight):
    assert_the_same_bits(on_eight / "halved", on_eight / "whole")


@pytest.mark.parametrize("name", ["whole", "narrowed", "widened"])
def test_on_another_number_of_devices_it_is_the_same_to_rounding(name, on_eight):
    assert_equal_to_rounding(on_eight / name, on_eight / "alone")


def test_gone_on_with_it_asks_for_no_batch_that_it_has_trained_on(datasets, tmp_path, monkeypatch, caplog):
    config = config_of(tmp_path / "out", datasets)
    killed(tmp_path, config)
    asked, batch = [], TrainingData.batch

    def noted(self, step, **hosts):
        asked.append(step)
        return batch(self, step, **hosts)

    monkeypatch.setattr(TrainingData, "batch", noted)
    train(config)
    [resumed] = re.findall(r"resumed after step (\d+) of 30", caplog.text)
    assert 0 < int(resumed) <= KILLED_AFTER + 1
    assert list(dict.fromkeys(asked)) == list(range(int(resumed), STEPS))


def calls(function):
    """How many functions are called while ``function`` runs, those of C among them."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("options", [{}, {"limits": [40, None]}, {"segments": True}])
def test_a_batch_far_off_is_as_little_work_as_the_first(options):
    near, far = (data(5000, 3000, weights=[(3, 1), (1, 1)], at=[10**6], **options) for _ in range(2))
    at_first, far_off = calls(lambda: near.batch(0)), calls(lambda: far.batch(10**9))
    assert 100 < far_off < 2 * at_first  # a stage further on a batch has rows of both components


def test_no_more_of_the_cache_is_read_for_a_batch_far_off(datasets, tmp_path, monkeypatch):
    read = prepare(config_of(tmp_path / "out", datasets, packing="segmented")).data
    stream = type(read.components[0].stream)
    asked = []

    def noted(name):
        original = getattr(stream, name)

        def wrapped(self, *arguments):
            asked.append((name, np.size(arguments[0]), arguments[1]))
            return original(self, *arguments)

        return wrapped

    for name in ("tokens", "windows", "document_ends", "loss_mask"):
        monkeypatch.setattr(stream, name, noted(name))
    read.batch(0)
    first = sum(rows * length for _, rows, length in asked)
    asked.clear()
    read.batch(10**9)
    assert 0 < sum(rows * length for _, rows, length in asked) < 2 * first
