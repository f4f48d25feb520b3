"""Imports point only downwards, and describing a pipeline stays light."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    "jax",
    "jaxlib",
    "optax",
    "numpy",
    "pyarrow",
    "tokenizers",
    "huggingface_hub",
    "ray",
    "s3fs",
    "gcsfs",
    "fsspec",
    "wandb",
    "tensorboardX",
}


def test_imports_point_only_downwards():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert "2 kept, 0 broken" in checked.stdout


@pytest.mark.parametrize(
    "module",
    [
        "marin.execution.lazy",
        "marin.execution.runner",
        "marin.execution.worker",
        "marin.executors.local",
        "marin.experiment.cleaning",
        "marin.experiment.data",
        "marin.experiment.main",
        "marin.experiment.models",
        "marin.experiment.tokenizers",
        "marin.training.train",
        "marin.training.optimizers",
        "marin.training.trackers.configs",
        "marin.training.trackers.tracker",
        "marin.processing.cleaning.document_set",
        "marin.processing.cleaning.steps",
        "marin.processing.tokenize.tokenize",
        "marin.processing.mixture.mixture",
        "marin.processing.mixture.budget",
        "marin.cli.main",
    ],
)
def test_describing_a_pipeline_imports_nothing_heavy(module):
    code = f"import sys, {module}; print(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()


def test_the_lightest_import_brings_no_runner_and_no_display():
    code = "import sys, marin.execution.lazy; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"marin.execution.runner", "rich", "cloudpickle", "subprocess", "asyncio", "multiprocessing"}
