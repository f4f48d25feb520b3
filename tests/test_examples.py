"""The examples run, and do what they say. The first one trains for real: this is the slowest test of all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.timeout(1800)
EXAMPLE = ROOT / "examples" / "01_first_pipeline.py"
CUSTOM = ROOT / "examples" / "02_custom_steps.py"
OPTIMIZER = ROOT / "examples" / "03_own_optimizer.py"
MODEL = ROOT / "examples" / "04_own_model.py"


def run(script, *arguments, prefix, **environ):
    done = subprocess.run(
        [sys.executable, script, "--prefix", prefix, *arguments],
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
        env={**os.environ, **environ},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The store after the first run, and what that run printed."""
    prefix = tmp_path_factory.mktemp("demo") / "store"
    done = run(EXAMPLE, prefix=prefix)
    return prefix, done.stdout + done.stderr


def edited(folder, old, new):
    """The script with one change, under its own name: whoever edits it keeps the name."""
    text = EXAMPLE.read_text()
    assert text.count(old) == 1
    script = folder / EXAMPLE.name
    script.write_text(text.replace(old, new))
    return script


def test_every_example_has_a_test():
    assert [path.name for path in sorted((ROOT / "examples").glob("*.py"))] == [
        EXAMPLE.name,
        CUSTOM.name,
        OPTIMIZER.name,
        MODEL.name,
    ]


def test_custom_steps_run_and_are_cached(tmp_path):
    done = run(CUSTOM, prefix=tmp_path / "store")
    assert "7 built in" in done.stderr
    rows = re.findall(r"^ *(\d+) modules +([\d,]+) words +(\d\.\d\d) letters$", done.stdout, re.MULTILINE)
    assert [modules for modules, _, _ in rows] == ["10", "40", "160"]
    words = [int(count.replace(",", "")) for _, count, _ in rows]
    assert 0 < words[0] < words[1] < words[2]
    again = run(CUSTOM, prefix=tmp_path / "store")
    assert again.stdout == done.stdout
    assert "all 7 steps are cached or not needed" in again.stderr
    newer = run(CUSTOM, "--version", "2026.12.01", "--only", "raw/stdlib-10", prefix=tmp_path / "store")
    assert "1 built in" in newer.stderr


def test_an_optimizer_of_ones_own_trains_beside_adamw(tmp_path):
    done = run(OPTIMIZER, prefix=tmp_path / "store")
    rows = re.findall(r"^ *([\w-]+): ([\d.]+) bits per byte untrained, ([\d.]+) trained$", done.stdout, re.MULTILINE)
    assert [name for name, _, _ in rows] == ["adamw", "sign-descent"]
    (_, untrained, adamw), (_, same, signs) = ((name, float(before), float(after)) for name, before, after in rows)
    assert untrained == same > 7.5  # nothing is known of bytes: 8 bits
    assert adamw < 4
    assert signs < 4
    assert adamw != signs
    again = run(OPTIMIZER, prefix=tmp_path / "store")
    assert again.stdout == done.stdout
    assert "all 3 steps are cached or not needed" in again.stderr


def test_a_model_of_ones_own_learns_from_the_bytes_before(tmp_path):
    done = run(MODEL, prefix=tmp_path / "store")
    count, untrained, learned = re.search(
        r"^([\d,]+) parameters: ([\d.]+) bits per byte untrained, ([\d.]+) trained$", done.stdout, re.MULTILINE
    ).groups()
    store = tmp_path / "store" / "checkpoints/asyncio-convolution/2026.11.30"
    with safe_open(next(store.rglob("params.safetensors")), framework="numpy") as file:
        made = sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118  # it is no dictionary
    assert int(count.replace(",", "")) == made
    assert float(learned) < 4 < 7.5 < float(untrained)


def test_the_model_learns_more_than_zlib_knows(trained):
    untrained, learned, zlib = map(
        float, re.search(r"([\d.]+) untrained, ([\d.]+) trained; zlib -9: ([\d.]+)", trained[1]).groups()
    )
    assert learned < zlib < untrained
    for name in ("tokenizers/stdlib", "tokenized/stdlib", "checkpoints/stdlib-1m"):
        assert f"build  {name}/2026.11.30" in trained[1]
        assert f"{trained[0]}/{name}/2026.11.30" in trained[1]
        assert f"{name}@2026.11.30: built" in trained[1]
    assert re.search(r"validation loss [\d.]+, [\d.]+ bits per byte", trained[1])


def test_a_second_run_is_all_cached_and_imports_no_jax(trained):
    again = run(EXAMPLE, prefix=trained[0], PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip() for line in again.stderr.splitlines() if "import time:" in line}
    assert "marin.execution.runner" in imported
    assert not imported & {"jax", "numpy", "pyarrow", "tokenizers"}
    assert "all 3 steps are cached" in again.stderr


def test_an_edited_learning_rate_is_told_once_and_the_checkpoint_served(trained, tmp_path):
    done = run(edited(tmp_path, "lr=5e-3", "lr=4e-3"), prefix=trained[0])
    assert done.stderr.count("warning:") == 1
    assert "config.optimizer.lr: 0.005 → 0.004" in done.stderr
    assert "built in" not in done.stderr
    assert re.search(r"[\d.]+ trained", done.stdout).group() in trained[1]


def test_a_bumped_version_trains_anew_and_uses_the_tokens_again(trained, tmp_path):
    script = edited(
        tmp_path, 'experiment_main(build, version="2026.11.30")', 'experiment_main(build, version="2026.12.01")'
    )
    planned = run(script, "--plan", prefix=trained[0]).stdout
    assert "cached  tokenized/stdlib/2026.11.30" in planned
    assert "build   checkpoints/stdlib-1m/2026.12.01" in planned


def test_version_dev_rebuilds_the_model_only(trained):
    planned = run(EXAMPLE, "--plan", "--version", "dev", prefix=trained[0]).stdout
    assert "cached  tokenizers/stdlib/2026.11.30" in planned
    assert "cached  tokenized/stdlib/2026.11.30" in planned
    assert "build   checkpoints/stdlib-1m/dev" in planned
