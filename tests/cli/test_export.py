"""``marin export``: of a model that was trained here, and of one that was imported."""

import json

import pytest
from safetensors import safe_open

from tests.cli.commands import marin, script

TRAIN = """
from marin.experiment.data import files, tokenized, train_lm, trained_tokenizer
from marin.experiment.main import experiment_main
from marin.experiment.models import LlamaConfig

SMALL = LlamaConfig(hidden_dim=16, intermediate_dim=32, num_layers=1, num_heads=2, max_seq_len=64)
VERSION = "2026.07.01"

def tokens():
    text = files("*.txt", format="text")
    tokenizer = trained_tokenizer("tokenizers/verse", source=text, vocab_size=280, version=VERSION)
    return tokenized("tokenized/verse", source=text, tokenizer=tokenizer, version=VERSION)

def build():
    return train_lm(
        name="checkpoints/poet",
        model=SMALL,
        datasets=tokens(),
        batch_size=2,
        seq_len=16,
        num_train_steps=2,
        version=VERSION,
    )

if __name__ == "__main__":
    experiment_main(build)
"""

IMPORT = """
from train import tokens
from marin.experiment.data import train_lm
from marin.experiment.main import experiment_main
from marin.experiment.models import hf_model

def build():
    model = hf_model("models/poet", path="out", version="2026.07.01")
    return train_lm(
        name="checkpoints/more",
        init_from=model,
        datasets=tokens(),
        batch_size=2,
        seq_len=16,
        num_train_steps=2,
        version="2026.07.01",
    )

if __name__ == "__main__":
    experiment_main(build)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a model was trained, exported as ``out``, and that imported again and trained on."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "poem.txt").write_text("Roses are red, violets are blue, and verses are made of words.\n" * 40)
    made = marin(folder, "run", script(folder, TRAIN, "train.py"))
    assert made.returncode == 0, made.stdout + made.stderr
    made = marin(folder, "export", "checkpoints/poet@2026.07.01", "out")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "out: 11,568 parameters of checkpoints/poet@2026.07.01 as float32" in made.stdout
    assert "in 5 files" in made.stdout
    assert made.stderr == ""
    made = marin(folder, "run", script(folder, IMPORT, "import.py"))
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


def test_what_was_trained_here_has_its_tokenizer_with_it(folder):
    files = {path.name for path in (folder / "out").iterdir()}
    assert files >= {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json"}
    assert json.loads((folder / "out/tokenizer_config.json").read_text())["eos_token"] == "<|endoftext|>"
    assert json.loads((folder / "out/config.json").read_text())["vocab_size"] == 280


def test_what_was_imported_is_exported_with_the_same_bits(folder):
    made = marin(folder, "export", "models/poet", "again", "--json")
    told = json.loads(made.stdout)
    assert (told["id"], told["folder"], told["dtype"]) == ("models/poet@2026.07.01", "again", "float32")
    assert told["num_params"] == 11_568
    for name in told["files"]:
        assert (folder / "again" / name).read_bytes() == (folder / "out" / name).read_bytes()


def test_a_training_begins_with_what_was_imported(folder):
    made = marin(folder, "show", "checkpoints/more", "--json")
    result = json.loads(made.stdout)["record"]["build"]["result"]
    assert (result["num_params"], result["steps"]) == (11_568, 2)
    assert result["model"]["hidden_dim"] == 16


def test_the_dtype_can_be_chosen(folder):
    assert marin(folder, "export", "models/poet", "half", "--dtype", "bfloat16").returncode == 0
    with safe_open(folder / "half/model.safetensors", framework="numpy") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"BF16"}  # noqa: SIM118  # no dictionary


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["models/poet", "out"], "not an empty folder: nothing is written; choose another one"),
        (["tokenized/verse", "new"], "tokenized/verse@2026.07.01 is marin.TokenizedCache, no trained model"),
        (["models/nobody", "new"], "models/nobody"),
        (["models/poet", "new", "--dtype", "int8"], "invalid choice: 'int8'"),
    ],
)
def test_what_can_not_be_exported_is_told_and_nothing_is_written(folder, words, message):
    made = marin(folder, "export", *words)
    assert made.returncode != 0
    assert message in made.stderr
    assert "Traceback" not in made.stderr
    assert not (folder / "new").exists()
