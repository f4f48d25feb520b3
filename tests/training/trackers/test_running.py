"""The trackers of a training: what is refused before it begins, and what all of them together cost at its end."""

import subprocess
import sys
from pathlib import Path

import pytest

from marin.errors import ConfigurationError
from marin.training.trackers.background import BackgroundTracker
from marin.training.trackers.configs import TensorboardConfig, WandbConfig
from marin.training.trackers.running import Trackers, check_trackers
from marin.training.trackers.tracker import TrackedRun, checked_trackers
from tests.executors.processes import PATIENCE, eventually
from tests.training.trackers.sinks import OPENED, BrokenConfig, MissingConfig, SinkConfig

ROOT = Path(__file__).parents[3]


def tracked_run(folder, **changes):
    values = {"name": "poet", "output_path": str(folder), "resumed_step": 0, "num_steps": 3, "config": {"lr": 0.1}}
    return TrackedRun(**(values | changes))


@pytest.fixture
def opened():
    OPENED.clear()
    return OPENED


def test_every_tracker_gets_every_row_and_knows_of_the_run(opened, tmp_path):
    with Trackers([SinkConfig(), SinkConfig()], tracked_run(tmp_path, resumed_step=2)) as trackers:
        trackers.log({"step": 3, "loss": 1.0})
    assert [sink.rows for sink, _ in opened] == [[{"step": 3, "loss": 1.0}]] * 2
    assert all(sink.closed for sink, _ in opened)
    assert [run.resumed_step for _, run in opened] == [2, 2]


def test_a_tracker_that_fails_does_not_touch_the_others(opened, tmp_path):
    configs = [SinkConfig(raises="open"), SinkConfig(hangs="open"), SinkConfig()]
    trackers = Trackers(configs, tracked_run(tmp_path))
    trackers.log({"step": 1})
    eventually(lambda: any(sink.rows for sink, _ in opened))
    trackers.close(0.5)
    assert [sink.rows for sink, _ in opened if not (sink.raises or sink.hangs)] == [[{"step": 1}]]


def test_several_that_hang_are_waited_for_together(opened, tmp_path, monkeypatch):
    until = []
    monkeypatch.setattr(BackgroundTracker, "end_close", lambda self, deadline: until.append(deadline))
    trackers = Trackers([SinkConfig(hangs=place) for place in ("open", "log", "close")] * 3, tracked_run(tmp_path))
    trackers.log({"step": 1})
    trackers.close(1.0)
    assert len(until) == 9
    assert len(set(until)) == 1


def test_a_process_ends_though_its_tracker_hangs_for_ever(tmp_path):
    program = f"""
from marin.training.trackers.running import Trackers
from tests.training.trackers.sinks import SinkConfig
from tests.training.trackers.test_running import tracked_run
trackers = Trackers([SinkConfig(hangs="close")], tracked_run({str(tmp_path)!r}))
trackers.log({{"step": 1}})
trackers.close(0.2)
print("trained")
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout == "trained\n"


def test_secrets_do_not_reach_a_tracker(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    run = tracked_run(tmp_path, config={"note": "key 0123456789abcdef", "password": "hunter22", "lr": 0.1})
    with Trackers([SinkConfig()], run):
        pass
    assert "0123456789abcdef" not in str(opened[0][1])
    assert "hunter22" not in str(opened[0][1])
    assert opened[0][1].config["lr"] == 0.1


@pytest.mark.parametrize("config", [MissingConfig(), BrokenConfig()])
def test_a_tracker_that_can_not_be_imported_is_told_before_the_training(config):
    with pytest.raises(ConfigurationError, match=rf"{type(config).__name__}: its tracker .* can't be imported"):
        check_trackers([config])


@pytest.mark.parametrize(
    ("config", "package", "extra"),
    [(TensorboardConfig(), "tensorboardX", "tensorboard"), (WandbConfig(project="poems"), "wandb", "wandb")],
)
def test_an_extra_that_is_not_installed_is_told_before_the_training(config, package, extra, monkeypatch):
    def find_nothing(name):
        assert name == package

    monkeypatch.setattr("importlib.util.find_spec", find_nothing)
    with pytest.raises(ConfigurationError, match=rf"needs {package}, .* pip install 'marin\[{extra}\]'"):
        check_trackers([config])


def test_what_is_there_is_accepted():
    check_trackers([SinkConfig(), TensorboardConfig()])


class NotADataclass:
    tracker = "my_project:open"


@pytest.mark.parametrize("wrong", ["wandb", NotADataclass(), TensorboardConfig, 3, None])
def test_what_describes_no_tracker_is_told_when_the_training_is_described(wrong):
    with pytest.raises(ConfigurationError, match=r"train_lm\('poet'\).*describes no tracker"):
        checked_trackers("train_lm('poet')", [wrong])


def test_trackers_are_a_list():
    with pytest.raises(ConfigurationError, match=r"is no list: write trackers=\["):
        checked_trackers("train_lm('poet')", TensorboardConfig())
    assert checked_trackers("train_lm('poet')", [TensorboardConfig()]) == (TensorboardConfig(),)


@pytest.mark.parametrize("wrong", [{"project": ""}, {"tags": ["a"]}, {"tags": "ab"}, {"tags": (1,)}])
def test_a_run_of_wandb_has_a_project_and_tags_that_are_text(wrong):
    with pytest.raises(ConfigurationError, match=r"WandbConfig: (project|tags)="):
        WandbConfig(**({"project": "poems"} | wrong))
